"""Restore the order of the sentences of a paragraph with the sentence-order head.

    python examples/restore_order.py

In pretraining, ALBERT learns whether two neighboring texts are in order or swapped. This script applies the
head to every pair of sentences, and chooses the most probable order of all sentences.
"""

import math
from itertools import combinations, permutations

from albertkit import pipeline

PARAGRAPHS = """
On Monday morning Laura took the train to her new office.
She found her desk and turned on the computer.
At ten her manager came in and asked her to answer a few messages.
After that she had lunch with the others, and they told her about the customers.
When she came home in the evening, she was tired but happy.

Peter wanted to make a cake for his sister.
He bought flour, eggs and butter and looked for a recipe.
Then he put everything into a bowl and stirred it for some minutes.
The cake was in the oven for an hour, and the kitchen began to smell of it.
When it was ready at last, his sister ate two pieces of it.

Mr. Brown had been waiting for the package for a week.
At last it came, and he opened it with a knife.
It was the wrong book, and the first page was torn.
He called the shop, and a young woman answered him.
She was very sorry, and the next day she sent him the right one.

The two friends left the hotel after breakfast.
They drove for some hours through the forest, and the road became steeper.
At the top of the hill they stopped and ate their bread and cheese.
From there they could see the river and the roofs of the town.
In the evening they arrived there, tired and hungry.
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
