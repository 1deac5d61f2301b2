"""Train the bundled sentence vectors from books and modern text, so that a text finds related passages.

    python scripts/sentence_vectors.py --texts books.parquet modern.parquet --output runs/sentences

The model is a bag of tokens in the form of ALBERT: one vector for each piece of the vocabulary, and a layer
that changes nothing. The mean of the vectors of a text's tokens is the vector of the text, so the order of
the tokens does not matter. Every engine, export and server can load the folder.

1. Passages of 60 to 100 words, as in `embedding_figures.py`; every 40th document of a file is held out. A
   line that ends in a question mark is a question, and the text after it is its answer.
2. First vectors: random directions, weighted with the inverse document frequency.
3. Contrastive training on three kinds of pairs: a part of a passage, with some of its tokens missing, finds
   the passage; a passage finds the one that follows it; a question finds its answer. The other texts of the
   batch are the wrong answers. Batches of passages have several of each document, which are hard to
   distinguish.

Needs the `test` extra.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from embedding_figures import books, passages
from pages import command_line

from albertkit import AlbertConfig, AlbertModel, AlbertTokenizer
from albertkit.checkpoints.sentence_modules import SentenceModules, attach
from albertkit.files import check_new_folder

DIMENSIONS = 382
SHARES = {"part": 4 / 9, "next": 3 / 9, "question": 2 / 9}  # of the batches
DOCUMENTS, FROM_DOCUMENT = 64, 8  # in a batch, and passages from each
QUESTIONS = 512  # in a batch
PART, DROPPED = (6, 24), 0.3  # tokens of a part of a passage, and the share of them that is missing
QUESTION_WORDS, ANSWER_WORDS = (4, 25), (30, 100)
TEMPERATURE = 0.05
LEARNING_RATE, WARM_UP = 1e-3, 20
SCALE = 0.2  # of the first vectors, relative to the learning rate
POSITIONS = 512
ENDS = 1e-3  # length of the vectors of [CLS] and [SEP], relative to the mean of all pieces


@dataclass(frozen=True)
class Corpus:
    """The passages of all documents, with concatenated ids, and their questions."""

    ids: np.ndarray
    ends: np.ndarray
    """(N,), where each passage ends in `ids`."""
    documents: np.ndarray
    """(N,), the number of each passage's document."""
    places: np.ndarray
    """(N,); neighbors in a document have consecutive places."""
    questions: list[np.ndarray]
    answers: list[np.ndarray]
    """The ids of the text after each question."""

    def __len__(self) -> int:
        """Return the number of passages N."""
        return len(self.ends)

    def passages(self, chosen: np.ndarray) -> list[np.ndarray]:
        """Return the ids of passages."""
        begins = np.where(chosen > 0, self.ends[chosen - 1], 0)
        return [self.ids[begin:end] for begin, end in zip(begins, self.ends[chosen], strict=True)]

    def with_next(self) -> np.ndarray:
        """Return the passages whose next one is a neighbor in the same document."""
        same = self.documents[1:] == self.documents[:-1]
        return np.flatnonzero(same & (self.places[1:] == self.places[:-1] + 1))


def questions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the questions of a text, each with the beginning of the text after it."""
    lines = [line.strip() for line in text.split("\n")]
    for number, line in enumerate(lines):
        words = " ".join(lines[number + 1 : number + 6]).split()
        is_question = line.endswith("?") and QUESTION_WORDS[0] <= len(line.split()) <= QUESTION_WORDS[1]
        if is_question and len(words) >= ANSWER_WORDS[0]:
            yield line, " ".join(words[: ANSWER_WORDS[1]])


def read_corpus(paths: list[Path], tokenizer: AlbertTokenizer) -> Corpus:
    """Return the passages and questions of all documents that are not held out."""

    def encode(texts: list[str]) -> list[np.ndarray]:
        ids = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"] if texts else []
        return [np.array(text, np.uint16) for text in ids]

    ids, numbers, places, asked, answers = [], [], [], [], []
    for offset, path in enumerate(paths):
        for number, text in books(path, held_out=False):
            of_document, pairs = dict(passages(text)), list(questions(text))
            ids += encode([*of_document.values()])
            numbers += [number * len(paths) + offset] * len(of_document)
            places += of_document
            asked += encode([question for question, _ in pairs])
            answers += encode([answer for _, answer in pairs])
    ends = np.cumsum([len(passage) for passage in ids], dtype=np.int64)
    flat = np.concatenate([*ids, np.zeros(0, np.uint16)])
    return Corpus(flat, ends, np.array(numbers), np.array(places), asked, answers)


def first_vectors(corpus: Corpus, vocabulary: int, rng: np.random.Generator) -> np.ndarray:
    """Return random vectors (V, D), with lengths in proportion to the inverse document frequency."""
    rows = np.repeat(np.arange(len(corpus)), np.diff(corpus.ends, prepend=0))
    distinct = np.unique(rows * vocabulary + corpus.ids)
    frequencies = np.bincount(distinct % vocabulary, minlength=vocabulary)
    weights = np.log((1 + len(corpus)) / (1 + frequencies)) + 1
    vectors = rng.standard_normal((vocabulary, DIMENSIONS)) * weights[:, None]
    return (SCALE / np.sqrt(DIMENSIONS) * vectors).astype(np.float32)


class Batches:
    """Random batches: lists of texts and of the texts that they should find, as ids."""

    def __init__(self, corpus: Corpus, rng: np.random.Generator) -> None:
        neighbors = corpus.with_next()
        cuts = np.flatnonzero(np.diff(corpus.documents[neighbors])) + 1
        self.documents = [part for part in np.split(neighbors, cuts) if len(part) >= FROM_DOCUMENT]
        if len(self.documents) < DOCUMENTS:
            raise SystemExit(
                f"{len(self.documents)} documents have over {FROM_DOCUMENT} passages of 60 to 100 words. "
                f"Expected at least {DOCUMENTS}, so that a batch has passages of {DOCUMENTS} documents."
            )
        sizes = np.sqrt([len(part) for part in self.documents])
        self.corpus, self.shares, self.rng = corpus, sizes / sizes.sum(), rng
        kinds = SHARES if corpus.questions else {name: SHARES[name] for name in ("part", "next")}
        self.kinds, weights = list(kinds), np.array([*kinds.values()])
        self.weights = weights / weights.sum()

    def draw(self) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
        """Return N texts, the texts to find, and where (N, N) another text is not a wrong answer."""
        rng, corpus = self.rng, self.corpus
        kind = rng.choice(self.kinds, p=self.weights)
        if kind == "question":
            count = len(corpus.questions)
            chosen = rng.choice(count, min(QUESTIONS, count), replace=False)
            texts = [corpus.questions[number] for number in chosen]
            others = [corpus.answers[number] for number in chosen]
            same = equal(texts) | equal(others)
            np.fill_diagonal(same, False)
            return texts, others, same
        documents = rng.choice(len(self.documents), DOCUMENTS, replace=False, p=self.shares)
        chosen = np.concatenate([
            rng.choice(self.documents[number], FROM_DOCUMENT, replace=False) for number in documents
        ])  # fmt: skip
        if kind == "next":
            neighbors = np.abs(chosen[:, None] - chosen) == 1
            return corpus.passages(chosen), corpus.passages(chosen + 1), neighbors
        if rng.random() < 0.5:
            chosen = rng.choice(len(corpus), len(chosen), replace=False)
        parts, wholes = zip(*map(self.part, corpus.passages(chosen)), strict=True)
        return list(parts), list(wholes), np.zeros((len(chosen), len(chosen)), bool)

    def part(self, passage: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return some tokens of a part of a passage, and the passage, half of the time without the part."""
        size = min(self.rng.integers(*PART, endpoint=True), len(passage))
        begin = self.rng.integers(len(passage) - size + 1)
        part = passage[begin : begin + size]
        kept = part[self.rng.random(size) >= DROPPED]
        rest = np.concatenate([passage[:begin], passage[begin + size :]])
        return (kept if len(kept) else part), (rest if self.rng.random() < 0.5 and len(rest) else passage)


def equal(texts: list[np.ndarray]) -> np.ndarray:
    """Return which texts (N, N) are equal."""
    _, numbers = np.unique([text.tobytes() for text in texts], return_inverse=True)
    return numbers[:, None] == numbers


def train(vectors: np.ndarray, batches: Batches, steps: int) -> np.ndarray:
    """Return the vectors (V, D) after `steps` contrastive steps."""
    weight = torch.nn.Parameter(torch.from_numpy(vectors))
    optimizer = torch.optim.Adam([weight], lr=LEARNING_RATE)

    def embed(texts: list[np.ndarray]) -> torch.Tensor:
        starts = torch.tensor(np.cumsum([0, *map(len, texts[:-1])]))
        ids = torch.from_numpy(np.concatenate(texts).astype(np.int64))
        return F.normalize(F.embedding_bag(ids, weight, starts, mode="sum"))

    mean = 0.0
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * min(1, (step + 1) / WARM_UP) * (1 - step / steps)
        texts, others, same = batches.draw()
        similarity = embed(texts) @ embed(others).T / TEMPERATURE
        similarity = similarity.masked_fill(torch.from_numpy(same), -1e4)
        right = torch.arange(len(texts))
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
    parser.add_argument("--texts", type=Path, nargs="+", required=True, help="files with a document per row")
    parser.add_argument("--tokenizer", default="bundled", help="folder or name of the tokenizer")
    parser.add_argument("--steps", type=int, default=2000, help="contrastive steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True, help="folder of the model")
    arguments = parser.parse_args()
    for path in arguments.texts:
        if not path.is_file():
            parser.error(f"there is no file {path}. Expected a Parquet file with one document per row.")
    check_new_folder(arguments.output)
    torch.manual_seed(arguments.seed)
    rng = np.random.default_rng(arguments.seed)
    tokenizer = AlbertTokenizer.from_pretrained(arguments.tokenizer)
    corpus = read_corpus(arguments.texts, tokenizer)
    print(
        f"{len(corpus):,} passages, {len(corpus.ids):,} tokens, {len(corpus.questions):,} questions",
        flush=True,
    )
    batches = Batches(corpus, rng)
    vectors = train(first_vectors(corpus, len(tokenizer), rng), batches, arguments.steps)
    set_special(vectors, tokenizer, rng)
    model = as_albert(vectors).half()
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(arguments.output)
    tokenizer.save_pretrained(arguments.output)
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
