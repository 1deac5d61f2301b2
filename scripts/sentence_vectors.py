"""Train the bundled sentence vectors from books: a passage should find the passage that follows it.

    python scripts/sentence_vectors.py --texts books.parquet --output runs/sentences

The model is a bag of tokens in the form of ALBERT: one vector for each piece of the vocabulary, and a layer
that changes nothing. The mean of the vectors of a text's tokens is the vector of the text, so the order of
the tokens does not matter. Every engine, export and server can load the folder.

1. Passages of 60 to 100 words, as in `embedding_figures.py`; every 40th book is held out.
2. First vectors: canonical correlations of neighboring passages, after subtracting the mean of each book (the
   directions in which a passage predicts the next one), and random directions (which distinguish rare
   pieces). Both are weighted with the inverse document frequency.
3. Contrastive training: among 512 passages, 16 of each of 32 books, find the one that follows.

On one CPU core, this takes two and a half minutes and 3.1 GB of memory. Needs the extra `test`.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from embedding_figures import books, passages
from pages import command_line

from albertkit import AlbertConfig, AlbertModel, AlbertTokenizer
from albertkit.checkpoints.sentence_modules import SentenceModules, attach
from albertkit.files import check_new_folder

CORRELATED, RANDOM = 254, 128  # dimensions
CORRELATED_PAIRS = 200_000
ITERATIONS = 4  # of the subspace iteration
BOOKS, FROM_BOOK = 32, 16  # books in a batch, and passages from each
MIN_PASSAGES = 64  # in a book
TEMPERATURE = 0.05
LEARNING_RATE, WARM_UP = 1e-3, 20
POSITIONS = 512
ENDS = 1e-3  # length of the vectors of [CLS] and [SEP], relative to the mean of all pieces


@dataclass(frozen=True)
class Passages:
    """The passages of books, with concatenated ids."""

    ids: np.ndarray
    ends: np.ndarray
    """(N,), where each passage ends in `ids`."""
    books: np.ndarray
    """(N,), the number of each passage's book."""
    places: np.ndarray
    """(N,); neighbors in a book have consecutive places."""

    def __len__(self) -> int:
        """Return the number of passages N."""
        return len(self.ends)

    @property
    def lengths(self) -> np.ndarray:
        """Numbers of tokens (N,)."""
        return np.diff(self.ends, prepend=0)

    def with_next(self) -> np.ndarray:
        """Return the passages whose next one is a neighbor in the same book."""
        same = self.books[1:] == self.books[:-1]
        return np.flatnonzero(same & (self.places[1:] == self.places[:-1] + 1))


def read_passages(path: Path, tokenizer: AlbertTokenizer) -> Passages:
    """Return the passages of all books that are not held out."""
    ids, numbers, places = [], [], []
    for number, text in books(path, held_out=False):
        of_book = dict(passages(text))
        if of_book:
            encoded = tokenizer([*of_book.values()], add_special_tokens=False, verbose=False)
            ids += [np.array(passage, np.uint16) for passage in encoded["input_ids"]]
            numbers += [number] * len(of_book)
            places += of_book
    ends = np.cumsum([len(passage) for passage in ids])
    return Passages(np.concatenate([*ids, np.zeros(0, np.uint16)]), ends, np.array(numbers), np.array(places))


def weighted_counts(corpus: Passages, vocabulary: int) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return unit TF-IDF vectors (N, V) with the logarithm of the counts, and the weights (V,)."""
    rows = np.repeat(np.arange(len(corpus)), corpus.lengths)
    ones = np.ones(len(corpus.ids), np.float32)
    counts = sp.csr_matrix((ones, (rows, corpus.ids.astype(np.int32))), shape=(len(corpus), vocabulary))
    counts.sum_duplicates()
    frequencies = np.bincount(counts.indices, minlength=vocabulary)
    weights = (np.log((1 + len(corpus)) / (1 + frequencies)) + 1).astype(np.float32)
    counts.data = (1 + np.log(counts.data)) * weights[counts.indices]
    norms = np.sqrt(np.bincount(rows_of(counts), counts.data**2, minlength=len(corpus)))
    counts.data /= norms[rows_of(counts)].astype(np.float32)
    return counts, weights


def rows_of(matrix: sp.csr_matrix) -> np.ndarray:
    """Return the row of each entry."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def correlations(corpus: Passages, vectors: sp.csr_matrix, rng: np.random.Generator) -> np.ndarray:
    """Return vectors (V, `CORRELATED`) of the pieces, in which neighboring passages correlate best."""
    neighbors = corpus.with_next()
    first = np.sort(rng.choice(neighbors, min(CORRELATED_PAIRS, len(neighbors)), replace=False))
    _, books = np.unique(corpus.books, return_inverse=True)
    shares = 1 / np.bincount(books)[books]
    means = (
        sp.csr_matrix((shares, (books, np.arange(len(corpus))))).astype(np.float32) @ vectors
    )  # (books, V)
    of_book = sp.csr_matrix((np.ones(len(first), np.float32), (np.arange(len(first)), books[first])),
                            shape=(len(first), means.shape[0]))  # fmt: skip
    before, after = vectors[first], vectors[first + 1]
    squares = before.multiply(before).sum(0) + after.multiply(after).sum(0)
    variances = np.asarray(squares, np.float32).ravel() / (2 * len(first))
    # Frequent pieces do not count more than rare ones.
    scale = 1 / np.sqrt(variances + np.median(variances[variances > 0]))

    def covariance(directions: np.ndarray) -> np.ndarray:
        """Multiply the scaled, symmetric covariance (V, V) of neighbors with directions (V, D)."""
        directions = directions * scale[:, None]
        first_side, second_side = (
            side @ directions - of_book @ (means @ directions) for side in (before, after)
        )
        sums = first_side + second_side
        product = before.T @ second_side + after.T @ first_side - means.T @ (of_book.T @ sums)
        return product * scale[:, None] / len(first)

    size = CORRELATED + CORRELATED // 10
    directions = np.linalg.qr(rng.standard_normal((vectors.shape[1], size)).astype(np.float32))[0]
    for _ in range(ITERATIONS):
        directions = np.linalg.qr(covariance(directions))[0]
    product = directions.T @ covariance(directions)
    values, rotation = np.linalg.eigh((product + product.T) / 2)
    leading = rotation[:, np.argsort(-values)[:CORRELATED]]
    return directions @ leading * scale[:, None]


def first_vectors(corpus: Passages, vocabulary: int, rng: np.random.Generator) -> np.ndarray:
    """Return the vectors (V, `CORRELATED` + `RANDOM`) before training."""
    vectors, weights = weighted_counts(corpus, vocabulary)
    parts = (
        correlations(corpus, vectors, rng),
        rng.choice(np.array([-1, 1], np.float32), (vocabulary, RANDOM)),
    )
    scaled = [part * weights[:, None] for part in parts]
    return np.hstack([part / np.sqrt(np.square(part).sum(1).mean()) for part in scaled]).astype(np.float32)


class Batches:
    """Batches with several passages from each of several books, so that the texts are hard to distinguish."""

    def __init__(self, corpus: Passages, rng: np.random.Generator) -> None:
        neighbors = corpus.with_next()
        cuts = np.flatnonzero(np.diff(corpus.books[neighbors])) + 1
        self.books = [part for part in np.split(neighbors, cuts) if len(part) >= MIN_PASSAGES]
        if len(self.books) < BOOKS:
            raise SystemExit(
                f"{len(self.books)} books have at least {MIN_PASSAGES} passages of 60 to 100 words. "
                f"Expected at least {BOOKS}, so that a batch has passages of {BOOKS} books."
            )
        sizes = np.sqrt([len(part) for part in self.books])
        self.shares, self.rng = sizes / sizes.sum(), rng

    def draw(self) -> np.ndarray:
        """Return the passages of a batch."""
        books = self.rng.choice(len(self.books), BOOKS, replace=False, p=self.shares)
        return np.concatenate([self.rng.choice(self.books[book], FROM_BOOK, replace=False) for book in books])


def train(vectors: np.ndarray, corpus: Passages, batches: Batches, steps: int) -> np.ndarray:
    """Return the vectors (V, D) after `steps` contrastive steps."""
    weight = torch.nn.Parameter(torch.from_numpy(vectors))
    optimizer = torch.optim.Adam([weight], lr=LEARNING_RATE)
    ids, begins = torch.from_numpy(corpus.ids.astype(np.int64)), corpus.ends - corpus.lengths

    def embed(chosen: np.ndarray) -> torch.Tensor:
        parts = [ids[begins[index] : corpus.ends[index]] for index in chosen]
        starts = torch.tensor(np.cumsum([0, *map(len, parts[:-1])]))
        return F.normalize(F.embedding_bag(torch.cat(parts), weight, starts, mode="sum"))

    mean = 0.0
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * min(1, (step + 1) / WARM_UP) * (1 - step / steps)
        chosen = batches.draw()
        similarity = embed(chosen) @ embed(chosen + 1).T / TEMPERATURE
        distance = torch.from_numpy(np.abs(chosen[:, None] - chosen))
        similarity = similarity.masked_fill(distance == 1, -1e4)  # neighbors are not wrong answers
        right = torch.arange(len(chosen))
        loss = (F.cross_entropy(similarity, right) + F.cross_entropy(similarity.T, right)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.item() if step == 0 else 0.98 * mean + 0.02 * loss.item()
        if (step + 1) % 400 == 0 or step + 1 == steps:
            print(f"step {step + 1}/{steps}: loss {mean:.3f}", flush=True)
    return weight.detach().numpy()


def set_special(vectors: np.ndarray, tokenizer: AlbertTokenizer, rng: np.random.Generator) -> None:
    """Set the vectors of the special tokens: zero, except those that every text has.

    [CLS] and [SEP] get one short vector, so that an empty text has a vector too. It is too short to matter in
    any other text.
    """
    length = ENDS * np.linalg.norm(vectors, axis=1).mean()
    direction = rng.standard_normal(vectors.shape[1])
    vectors[[*tokenizer.all_special_ids]] = 0
    vectors[[tokenizer.cls_token_id, tokenizer.sep_token_id]] = length * direction / np.linalg.norm(direction)


def as_albert(vectors: np.ndarray) -> AlbertModel:
    """Return the ALBERT whose hidden states are the vectors (V, D) of the tokens, up to one factor.

    Layer normalization makes all states equally long, but a frequent piece needs a short vector. Two further
    coordinates, c and -c, give all embeddings the same length and the mean 0, which no normalization
    changes. The last normalization multiplies them by 0.
    """
    vectors = vectors - vectors.mean(1, keepdims=True)
    norms = np.linalg.norm(vectors, axis=1)
    longest = norms.max()
    rest = np.sqrt((longest**2 - norms**2) / 2)[:, None]
    hidden = vectors.shape[1] + 2
    embeddings = np.hstack([vectors, rest, -rest]) * (np.sqrt(hidden) / longest)
    config = AlbertConfig(
        vocab_size=len(vectors),
        embedding_size=hidden,
        hidden_size=hidden,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=1,
        max_position_embeddings=POSITIONS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    attach(config, SentenceModules(normalize=True))
    model = AlbertModel(config, add_pooling_layer=False)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(1.0 if name.endswith("LayerNorm.weight") or "layer_norm.weight" in name else 0.0)
        model.embeddings.word_embeddings.weight.copy_(torch.from_numpy(embeddings))
        model.encoder.embedding_hidden_mapping_in.weight.copy_(torch.eye(hidden))
        last = model.encoder.albert_layer_groups[0].albert_layers[0].full_layer_layer_norm
        last.weight[-2:] = 0
    return model


def main() -> None:
    """Train and write the model."""
    parser = command_line(__doc__)
    parser.add_argument("--texts", type=Path, required=True, help="books.parquet, one book per row")
    parser.add_argument("--tokenizer", default="bundled", help="folder or name of the tokenizer")
    parser.add_argument("--steps", type=int, default=2400, help="contrastive steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    arguments = parser.parse_args()
    if not arguments.texts.is_file():
        parser.error(f"there is no file {arguments.texts}. Expected a Parquet file with one book per row.")
    check_new_folder(arguments.output)
    torch.manual_seed(arguments.seed)
    rng = np.random.default_rng(arguments.seed)
    tokenizer = AlbertTokenizer.from_pretrained(arguments.tokenizer)
    corpus = read_passages(arguments.texts, tokenizer)
    print(f"{len(corpus):,} passages, {len(corpus.ids):,} tokens", flush=True)
    batches = Batches(corpus, rng)
    vectors = first_vectors(corpus, len(tokenizer), rng)
    vectors = train(vectors, corpus, batches, arguments.steps)
    set_special(vectors, tokenizer, rng)
    model = as_albert(vectors).half()
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(arguments.output)
    tokenizer.save_pretrained(arguments.output)
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
