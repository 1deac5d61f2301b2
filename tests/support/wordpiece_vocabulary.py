"""A small WordPiece vocabulary with Chinese and English words."""

HAN = "今天气很好我喜欢北京大学生活的真谛是爱不一二三中国人民银行长龍龜"
WORDS = "the an fox word words run ##ning play ##ed ##ing albert is good cafe naive un ##aff ##able"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
MARKS = ".,;:!?()[]'\"-/@#$%&*。，、！？「」（）《》"  # noqa: RUF001
# The order of the Chinese models: padding, unused pieces, the other special tokens, words.
PIECES = (
    *("[PAD]", *(f"[unused{number}]" for number in range(1, 20)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *(*HAN, *MARKS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS.split()),
    *("The", "É", "é", "##é", "ü", "##Ü", "Fox", "㐀", "𠀀", "한국", "한", "##국", "ア", "##イ", "ー"),
)
