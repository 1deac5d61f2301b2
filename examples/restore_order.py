"""Restore the order of the sentences of a paragraph with the sentence-order head.

    python examples/restore_order.py

In pretraining, ALBERT learns whether two neighboring texts are in order or swapped. This script applies the
head to every pair of sentences, and chooses the most probable order of all sentences.
"""

import math
from itertools import combinations, permutations

from albertkit import pipeline

PARAGRAPHS = """
Early in the morning the captain went on board his ship.
He ordered the men to raise the anchor and set the sails.
By noon the harbour was out of sight, and the wind grew stronger.
That night a great storm broke over them and carried away the mast.
When the sun rose at last, they saw the coast and thanked God that they were alive.

There was once a poor miller who had three sons.
When he died, the eldest took the mill, and nothing was left for the youngest but the cat.
The boy sat down and wept, for he did not know how he should live.
Then the cat began to speak and asked him for a pair of boots.
The boy gave her what she wished, and from that day he never was hungry again.

Mr. Brown had been expecting the letter for a week.
At last it came, and he opened it with a trembling hand.
It said that his uncle was dead and had left him the house.
He read it twice, and then he called his wife.
She wept a little, and the next day they packed their trunks.

The two friends left the inn after breakfast.
They walked for some hours through the forest, and the path became steeper.
At the top of the hill they rested and ate their bread and cheese.
From there they could see the river and the roofs of the town.
In the evening they reached its gates, tired and covered with dust.
"""


def main() -> None:
    judge = pipeline("sentence-order")
    shares = []
    for sentences in map(str.splitlines, PARAGRAPHS.strip().split("\n\n")):
        places = list(permutations(range(len(sentences)), 2))
        answers = judge([(sentences[first], sentences[second]) for first, second in places])
        follows = {  # log probability that the second sentence follows the first
            pair: math.log(answer["score"] if answer["label"] == "in order" else 1 - answer["score"])
            for pair, answer in zip(places, answers, strict=True)
        }
        best = max(
            permutations(range(len(sentences))),
            key=lambda order: sum(follows[pair] for pair in combinations(order, 2)),
        )
        right = [first < second for first, second in combinations(best, 2)]
        shares.append(sum(right) / len(right))
        print(f"{shares[-1]:.0%} of the pairs are in order:")
        for place in best:
            print(f"  {place + 1}. {sentences[place]}")
    print(f"\npairs in order: {sum(shares) / len(shares):.1%} (by chance 50%)")


if __name__ == "__main__":
    main()
