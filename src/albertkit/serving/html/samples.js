// Sample texts for the panels. Those for classifiers depend on the labels.

const SAMPLES = {
  fill: [
    { text: "The doctor shook his [MASK] and said nothing." },
    { text: "She drank a cup of [MASK] before work." },
    { text: "She opened the [MASK] and went into the room." },
  ],
  order: [{
    first: "She got up early.",
    second: "After breakfast, she took the bus to work.",
  }],
  answer: [{
    question: "Where did Anna leave her keys?",
    context: "Anna took the bus to work this morning. She left her keys on the kitchen table.",
  }],
  choose: [{
    situation: "The cook put the soup on the table.", asked: "",
    options: "Everybody began to eat.\nThe train left the station.\nHe repaired the piano.",
  }],
  tag: [{ tagged: "Anna Schmidt moved from Zürich to the Berlin office of Siemens in May." }],
  vectors: [{
    compared: "She plays the piano every evening.",
    others: "Every night she makes music.\nThe train to Vienna was late.\nHe repairs old pianos.",
  }],
  "zero-shot": [{
    unlabeled: "The cook put the soup on the table.", candidates: "cooking, sports, music",
    template: "This example is {}.",
  }],
};
const texts = (...given) => given.map((classified) => ({ classified, pair: "" }));
const pairs = (...given) => given.map(([classified, pair]) => ({ classified, pair }));
const SAME = pairs(
  ["The shop opens at nine in the morning.", "In the morning, the shop opens at nine."],
  ["How do I learn to swim?", "Where can I buy a boat?"]);
const BY_LABELS = [ // used if all labels match
  [/^((very|slightly|somewhat) )?(positive|negative|neutral|pos|neg|mixed)$|^[1-5] stars?$/, texts(
    "A quiet, moving story that stays with you.", "Two hours of noise, and not one good joke.")],
  [/^(not )?(entailment|entailed|contradiction|neutral)$/, pairs(
    ["A man is playing a guitar on a stage.", "Someone is making music."],
    ["A man is playing a guitar on a stage.", "The man is asleep."],
    ["A man is playing a guitar on a stage.", "The man is famous."])],
  [/^(not |non )?(equivalent|duplicates?|paraphrase|same|different|similar|similarity)$/, SAME],
  [/^(not |non |no )?(spam|ham)$/, texts(
    "You have won a free holiday! Reply now to claim your prize.", "Shall we meet at six in front of the station?")],
  [/^(not |non |in|un)?(acceptable|grammatical|correct)$/, texts(
    "The teacher gave her sister the key.", "The teacher her sister key the gave.")],
  [/^(not |non )?(toxic|hate|hateful|offensive|abusive|insult|neither|normal)$/, texts(
    "Thank you, that was kind of you.", "You are a fool, and nobody likes you.")],
  [/^(joy|happiness|happy|sad|sadness|anger|angry|fear|love|surprise|disgust|neutral|optimism)$/, texts(
    "I finally found the ring that I had lost!", "Nobody came to the station to meet her.")],
  [/^(world|politics|sports?|business|finance|economy|sci ?\/ ?tech|science|technology|tech|health|culture|entertainment|travel)$/,
    texts("The home team won the final with two late goals.", "The bank raised its interest rates again.")],
];
const MANY = 3; // labels that get a sample text of their own

function classifierSamples({ labels, text_pairs: readsPairs }) {
  const named = (labels ?? []).map((label) => label.replace(/[\s_-]+/g, " ").trim());
  const lower = named.map((name) => name.toLowerCase());
  const found = BY_LABELS.find(([pattern]) => lower.length && lower.every((name) => pattern.test(name)))?.[1];
  const isPair = Boolean(found?.[0].pair);
  if (found && isPair === (readsPairs ?? isPair)) return found;
  if (readsPairs) return SAME;
  const meanings = named.filter((name) => /\p{L}{2}/u.test(name) && !/^label \d+$/i.test(name));
  if (found || !meanings.length) return BY_LABELS[0][1];
  return texts(...meanings.slice(0, MANY).map((name) => `This text is about ${name}.`));
}

/** Return the sample texts of a panel for a model: objects with the names of the address.
 *
 * `fields` maps these names to the fields of the inputs. The model of an exported page may have its own samples.
 */
export function samplesOf(panel, fields, model) {
  if (!model.samples?.length) return panel === "classify" ? classifierSamples(model) : SAMPLES[panel];
  if (panel === "vectors") {
    const [compared, ...others] = model.samples.map(({ text }) => text);
    return [{ compared, others: others.join("\n") }];
  }
  return model.samples.map((sample) => Object.fromEntries(fields.map(([, name, input]) => [name, sample[input] ?? ""])));
}
