"""Tokenizers of each family that Atoll reads, trained small with Hugging Face's library, and strings that are hard.

make(family, texts, vocab_size) gives a `tokenizers.Tokenizer` with the components of the family's published files;
strings(seed, count, tokenizer) gives texts that mix scripts, marks, emoji, white space, control characters and the
tokenizer's own added tokens.
"""
import gzip
import itertools
import json
import os
import pathlib
import random
import subprocess
import sysconfig

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import numpy
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
TIKTOKEN = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
            r"|\s+(?!\S)|\s+")
QWEN = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
MARK = "\u2581"


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior, invert),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def special(*contents):
    return [AddedToken(content, special=True, normalized=False) for content in contents]


def around(tokenizer, before, after=""):
    named = [token for token in (before, after) if token]
    return processors.TemplateProcessing(single=" ".join(part for part in (before, "$A", after) if part),
                                         special_tokens=[(token, tokenizer.token_to_id(token)) for token in named])


def train(tokenizer, texts, vocab_size, special_tokens, alphabet):
    # Of characters the vocabulary keeps few, so that others are bytes or unknown.
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=2, special_tokens=special_tokens, initial_alphabet=alphabet,
        limit_alphabet=300, show_progress=False))


def edited(tokenizer, **model):
    """The same with other settings of its model, which Python's bindings do not all set."""
    file = json.loads(tokenizer.to_str())
    file["model"].update(model)
    return Tokenizer.from_str(json.dumps(file))


def without(tokenizer, lost, **model):
    """The same without tokens that contain a text of `lost`: real vocabularies lack bytes and characters."""
    file = json.loads(tokenizer.to_str())
    has_lost = lambda token: any(text in token for text in lost)
    kept = [token for token, _ in sorted(file["model"]["vocab"].items(), key=lambda item: item[1]) if not has_lost(token)]
    file["model"]["vocab"] = {token: id for id, token in enumerate(kept)}
    file["model"]["merges"] = [merge for merge in file["model"]["merges"] if not any(map(has_lost, merge))]
    file["model"].update(model)
    behind = itertools.count(len(kept))
    for token in file["added_tokens"]:
        token["id"] = kept.index(token["content"]) if token["content"] in kept else next(behind)
    file["post_processor"] = None
    return Tokenizer.from_str(json.dumps(file))


# --- byte-level families ---


def byte_alphabet():
    """Character -> the byte that it spells."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{chr(byte): byte for byte in plain}, **{chr(256 + i): byte for i, byte in enumerate(others)}}


def byte_level(texts, vocab_size, pre_tokenizer, nfc=False, special_tokens=("<|endoftext|>",)):
    tokenizer = Tokenizer(models.BPE())
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, texts, vocab_size, list(special_tokens), sorted(pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def gpt2(texts, vocab_size):
    return byte_level(texts, vocab_size, pre_tokenizers.ByteLevel(add_prefix_space=False))


def gpt2_split(texts, vocab_size):
    return byte_level(texts, vocab_size, split(GPT2))


def neox(texts, vocab_size):
    tokenizer = byte_level(texts, vocab_size, pre_tokenizers.ByteLevel(add_prefix_space=False), True,
                           ("<|endoftext|>", "<|padding|>"))
    tokenizer.add_tokens([AddedToken(" " * count, normalized=True) for count in range(24, 1, -1)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


def llama3(texts, vocab_size):
    tokenizer = byte_level(texts, vocab_size, split(CL100K), special_tokens=())
    # Words that no merges make, which ignore_merges takes whole.
    spelled = [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str("xqzjy qjxzkv zqx\n\u00e9\u00e8\u00ea")]
    vocabulary = json.loads(tokenizer.to_str())["model"]["vocab"]
    for word in spelled:
        vocabulary.setdefault(word, len(vocabulary))
    tokenizer = edited(tokenizer, ignore_merges=True, vocab=vocabulary)
    tokenizer.add_special_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|eot_id|>",
                                         *(f"<|reserved_special_token_{i}|>" for i in range(250))))
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                                    around(tokenizer, "<|begin_of_text|>")])
    return tokenizer


def olmo2(texts, vocab_size):
    tokenizer = byte_level(texts, vocab_size, split(CL100K, "removed", True), special_tokens=())
    tokenizer.add_special_tokens(special("<|fim_prefix|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"))
    tokenizer.add_tokens([AddedToken("|||IP_ADDRESS|||", normalized=False), AddedToken("|||EMAIL|||", normalized=True)])
    return tokenizer


def tiktoken(texts, vocab_size):
    return byte_level(texts, vocab_size, split(TIKTOKEN, "removed", True))


def qwen(texts, vocab_size):
    tokenizer = byte_level(texts, vocab_size, split(QWEN), True, ())
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in ("<tool_call>", "</tool_call>", "<think>")])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


DIGITS_APART = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + SHORT +
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + SHORT +
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]


def smollm(texts, vocab_size):
    return byte_level(texts, vocab_size, DIGITS_APART)


def gpt4o(texts, vocab_size):
    return byte_level(texts, vocab_size, split(O200K, "removed", True))


def deepseek(texts, vocab_size):
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in DEEPSEEK]
    return byte_level(texts, vocab_size, pre_tokenizers.Sequence(
        [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def claude(texts, vocab_size):
    tokenizer = byte_level(texts, vocab_size, pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.normalizer = normalizers.NFKC()
    return tokenizer


# Spellings of bytes that UTF-8 never has, of control characters, and of one that begins many characters.
LOST = ["\u00c0", "\u00c1", "\u00f5", "\u00ff", "\u0100", "\u0101", "\u0108", "\u010e", "\u00c3", "~"]


def lacking(texts, vocab_size):
    return without(gpt2(texts, vocab_size), LOST)


def lacking_unknown(texts, vocab_size):
    return without(qwen(texts, vocab_size), LOST, unk_token="!")


def lacking_fused(texts, vocab_size):
    return without(gpt2(texts, vocab_size), LOST, unk_token="!", fuse_unk=True)


def flags(texts, vocab_size):
    """Every flag that an added token may have, in all mixtures, with a normalizer."""
    tokenizer = byte_level(texts, vocab_size, split(QWEN), True)
    tokens = []
    for number, (single, left, right, normalized, is_special) in enumerate(itertools.product((False, True), repeat=5)):
        content = ["<{}>", "wo{}rd", "a\u0307{}", " sp{}", "{}\n"][number % 5].format(number)
        tokens.append(AddedToken(content, single_word=single, lstrip=left, rstrip=right, normalized=normalized,
                                 special=is_special))
    tokenizer.add_tokens(tokens)
    return tokenizer


# --- SentencePiece-style families ---


def sentence_piece(texts, vocab_size, words=None, byte_fallback=True, fuse_unk=True, extra=()):
    """As converters make them: <unk>, <s>, </s>, the bytes, the rest. `words` cuts the text that is learnt from."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=byte_fallback))
    tokenizer.pre_tokenizer = words or pre_tokenizers.Metaspace(prepend_scheme="always")
    bytes_of = [f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else []
    train(tokenizer, texts, vocab_size, ["<unk>", "<s>", "</s>", *bytes_of], [MARK])
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [token for token in file["added_tokens"] if not token["content"].startswith("<0x")]
    file["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.add_tokens(list(extra))
    tokenizer.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = around(tokenizer, "<s>")
    return tokenizer


PREPENDED = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])


def llama2(texts, vocab_size):
    tokenizer = sentence_piece(texts, vocab_size, extra=special("[INST]"))
    tokenizer.normalizer = PREPENDED
    return tokenizer


def llama2_normalized(texts, vocab_size):
    """As the first converters wrote it: added tokens are looked for in the normalised text."""
    tokenizer = sentence_piece(texts, vocab_size)
    tokenizer.normalizer = PREPENDED
    file = json.loads(tokenizer.to_str())
    for token in file["added_tokens"]:
        token["normalized"] = True
    file["added_tokens"].append({**file["added_tokens"][0], "id": tokenizer.get_vocab_size(), "content": "a b", "lstrip": True,
                                 "rstrip": True, "special": False})
    return Tokenizer.from_str(json.dumps(file))


def llama2_across_spaces(texts, vocab_size):
    """Merges that join words: the text cannot be cut at spaces."""
    tokenizer = sentence_piece([line[:200] for text in texts[:200] for line in text.split("\n")], vocab_size,
                               words=pre_tokenizers.Metaspace(prepend_scheme="always", split=False))
    tokenizer.normalizer = PREPENDED
    return tokenizer


def gemma(texts, vocab_size):
    tokenizer = sentence_piece(texts, vocab_size, extra=special("<start_of_turn>", "<end_of_turn>"))
    tokenizer.normalizer = normalizers.Replace(" ", MARK)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def mistral(texts, vocab_size):
    tokenizer = sentence_piece(texts, vocab_size, extra=special("[INST]", "[/INST]", "[TOOL_CALLS]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return tokenizer


def metaspace_words(texts, vocab_size):
    tokenizer = sentence_piece(texts, vocab_size)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always", split=True)
    return tokenizer


def metaspace_behind_mark(texts, vocab_size):
    tokenizer = metaspace_words(texts, vocab_size)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Prepend(MARK)])
    return tokenizer


def metaspace_never(texts, vocab_size):
    tokenizer = sentence_piece(texts, vocab_size)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="never")
    return tokenizer


def unknown_fused(texts, vocab_size):
    tokenizer = sentence_piece(texts, vocab_size, byte_fallback=False)
    tokenizer.normalizer = PREPENDED
    return tokenizer


def unknown_apart(texts, vocab_size):
    tokenizer = sentence_piece(texts, vocab_size, byte_fallback=False, fuse_unk=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    return tokenizer


def fallback_lacking(texts, vocab_size):
    """Bytes that are missing: a character with one is unknown as a whole."""
    return without(llama2(texts, vocab_size), ["<0xC3>", "<0x81>", "<0x9F>", "e"])


def fallback_lacking_apart(texts, vocab_size):
    return without(llama2(texts, vocab_size), ["<0xC3>", "<0x81>", "<0x9F>", "e"], fuse_unk=False)


def fallback_without_unknown(texts, vocab_size):
    return without(mistral(texts, vocab_size), ["<0xC3>", "<0x81>", "<0x9F>", "e"], unk_token=None)


# Published files are of these;
FAMILIES = {"gpt2": gpt2, "neox": neox, "llama3": llama3, "olmo2": olmo2, "qwen": qwen, "llama2": llama2, "mistral": mistral,
            "smollm": smollm, "gpt4o": gpt4o, "deepseek": deepseek, "claude": claude, "gemma": gemma}
# these have what rarely comes.
VARIANTS = {"gpt2_split": gpt2_split, "tiktoken": tiktoken, "flags": flags, "llama2_normalized": llama2_normalized,
            "llama2_across_spaces": llama2_across_spaces, "metaspace_words": metaspace_words,
            "metaspace_never": metaspace_never, "metaspace_behind_mark": metaspace_behind_mark, "unknown_fused": unknown_fused, "unknown_apart": unknown_apart,
            "lacking": lacking, "lacking_unknown": lacking_unknown, "lacking_fused": lacking_fused,
            "fallback_lacking": fallback_lacking, "fallback_lacking_apart": fallback_lacking_apart,
            "fallback_without_unknown": fallback_without_unknown}


# --- any normalizer, any pre-tokenizer ---


PATTERNS = [r"\d+|[aeiou]*", r"\w+|[^\w\s]+", r"(?i)[A-F\p{Lt}]+|\p{Lu}", r"[^\P{L}e]+", r"(?<=[a-z])\p{N}|\p{^Letter}\p{M}+",
            r"\p{Han}+|[[:punct:]]", " ", "e", "", MARK]


def charsmap():
    """SentencePiece's own table, as its models carry it."""
    return (pathlib.Path(sentencepiece.__file__).parent / "package_data" / "nmt_nfkc_cf.bin").read_bytes()


def random_normalizer(source, is_byte_level):
    count = source.randrange(0, 4)
    # What stands where nothing was the library loses or doubles in other steps.
    maybe_e = "e?" if count == 1 and not is_byte_level else "e"
    form = source.choice([normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD])
    steps = [form(), normalizers.Lowercase(), normalizers.Strip(*source.choices([True, False], k=2)),
             normalizers.Prepend(source.choice([MARK, "x", " "])), normalizers.Replace(" ", MARK),
             normalizers.Replace(Regex(source.choice([r"\s+", r"\p{Nd}", maybe_e])), source.choice([" ", "", "ab"])),
             normalizers.StripAccents(), normalizers.Nmt(), normalizers.Precompiled(charsmap()),
             normalizers.BertNormalizer(*source.choices([True, False], k=2), source.choice([True, False, None]), source.random() < 0.5)]
    return normalizers.Sequence(source.sample(steps, count))


def random_words(source, is_byte_level, is_normalized):
    """A pre-tokenizer of one to three steps, and ByteLevel for vocabularies of bytes.

    What is `first` the library tells by places in the text as it came: a mark that was part of its first character is, too.
    So that is only asked for in the first step.
    """
    behaviors = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]

    def step(number):
        schemes = ["always", "never"] if is_normalized or number else ["always", "first", "never"]
        pattern = source.choice(PATTERNS)
        behavior = source.choice(behaviors)
        return source.choice([
            lambda: pre_tokenizers.Split(pattern if len(pattern) < 2 else Regex(pattern), behavior, source.random() < 0.5),
            lambda: pre_tokenizers.Digits(source.random() < 0.5), lambda: pre_tokenizers.Punctuation(behavior),
            pre_tokenizers.Whitespace, pre_tokenizers.WhitespaceSplit, pre_tokenizers.BertPreTokenizer,
            lambda: pre_tokenizers.CharDelimiterSplit("e"),
            lambda: pre_tokenizers.Metaspace(source.choice([MARK, "_"]), source.choice(schemes),
                                             source.random() < 0.7),
            lambda: split(source.choice([GPT2, CL100K, QWEN, TIKTOKEN]), behavior, source.random() < 0.5)[0]])()

    steps = [step(number) for number in range(source.randrange(1, 4))]
    if is_byte_level:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=source.random() < 0.3, use_regex=source.random() < 0.5))
    return pre_tokenizers.Sequence(steps)


def word_models(texts, vocab_size):
    """Unigram, with bytes and without, WordPiece, WordLevel, BPE whose tokens say where in a word they are."""
    def trained(model, trainer, decoder, words=None):
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = words or pre_tokenizers.Whitespace()
        tokenizer.decoder = decoder
        tokenizer.train_from_iterator(texts, trainer)
        return tokenizer

    plain = {"vocab_size": vocab_size, "show_progress": False}
    unigram = trained(models.Unigram(), trainers.UnigramTrainer(unk_token="<unk>", special_tokens=["<unk>"], **plain),
                      decoders.Metaspace(), pre_tokenizers.Metaspace())
    with_bytes = json.loads(unigram.to_str())
    with_bytes["model"]["byte_fallback"] = True
    known = {token for token, _ in with_bytes["model"]["vocab"]}
    spelled = [f"<0x{byte:02X}>" for byte in range(256)]
    with_bytes["model"]["vocab"] += [[token, -20.0] for token in spelled if token not in known]
    with_bytes["decoder"] = json.loads(llama2(texts[:20], vocab_size).to_str())["decoder"]
    special_tokens = ["[UNK]"]
    affixed = {**plain, "special_tokens": special_tokens, "limit_alphabet": 200, "end_of_word_suffix": "</w>"}
    return [trained(models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>"), trainers.BpeTrainer(**affixed), decoders.BPEDecoder("</w>"),
                    pre_tokenizers.BertPreTokenizer()),
            trained(models.BPE(unk_token="[UNK]", fuse_unk=True, continuing_subword_prefix="##", end_of_word_suffix="</w>"),
                    trainers.BpeTrainer(continuing_subword_prefix="##", **affixed), decoders.BPEDecoder("</w>")),
            unigram, Tokenizer.from_str(json.dumps(with_bytes)),
            trained(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(special_tokens=special_tokens, **plain),
                    decoders.WordPiece(cleanup=True)),
            trained(models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(special_tokens=special_tokens, **plain), None)]


def pipelines(seed, count, texts, vocab_size):
    """Tokenizers with random steps before each kind of vocabulary."""
    source = random.Random(seed)
    some = [text[:20_000] for text in texts[:40]] + texts[-500:]  # Unigram's trainer takes long.
    vocabularies = [gpt2(texts, vocab_size), llama2(texts, vocab_size), unknown_fused(texts, vocab_size),
                    *word_models(some, vocab_size)]
    for number in range(count):
        kind = number % len(vocabularies)
        tokenizer = Tokenizer.from_str(vocabularies[kind].to_str())
        tokenizer.normalizer = random_normalizer(source, kind == 0)
        # As it was trained, now and then.
        if kind < 3 or source.random() < 0.7:
            tokenizer.pre_tokenizer = random_words(source, kind == 0, json.loads(tokenizer.to_str())["normalizer"]["normalizers"])
        added = [AddedToken(" Ab", normalized=True), AddedToken("\u4e16", normalized=True, single_word=True)]
        as_before = tokenizer.to_str()
        if source.random() < 0.5 and panics(tokenizer.add_tokens, added):
            tokenizer = Tokenizer.from_str(as_before)
        yield tokenizer


def panics(call, *arguments):
    """Whether the library does: it counts places wrongly behind some normalizers."""
    try:
        call(*arguments)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return True
    return False


def make(family, texts, vocab_size):
    return {**FAMILIES, **VARIANTS}[family](texts, vocab_size)


def python_sources(max_bytes):
    """Python files of this machine's standard library, up to `max_bytes` in all."""
    texts, total = [], 0
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if {"site-packages", "dist-packages"} & set(path.parts):
            continue
        text = path.read_bytes().decode("utf8", errors="replace")
        if total + len(text.encode()) > max_bytes:
            return texts
        texts.append(text)
        total += len(text.encode())
    return texts


SPACES = [" ", " ", " ", "\n", "\n", "\t", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u1680", "\u2003", "\u2028",
          "\u202f", "\u205f", "\u3000", "\u180e", "\u200b", "\ufeff", MARK]
WORDS = ["the", "'s", "'ll", "'LL", "don't", "'\u017f", "'Re", "I'VE", "'sAB", "def", "()", "==", "<|endof", "</s", "12", "3.14",
         "2024", "caf\u00e9", "xqzjy", " qjxzkv", "<0x41>", "\u2581\u2581", "self.value_of[index]", "\u00df", "\ufb06"]
DIGITS = [chr(zero + i) for zero in (0x30, 0x660, 0x966, 0xE50, 0x1D7CE, 0x1FBF0, 0x10D40) for i in range(10)]
DIGITS += ["\u00b2", "\u00bd", "\u2167", "\u3024", "\u4e94"]
EMOJI = ["\U0001F600", "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\u2764\ufe0f", "\U0001F1E9\U0001F1EA", "\U0001F44D\U0001F3FD"]
BASES = [0x61, 0x45, 0x71, 0xE9, 0x3B1, 0x5D0, 0x627, 0x915, 0xB95, 0xAC00, 0xAC01, 0x1112, 0x4E00, 0x304B, 0x1D157, 0x105D2]
MARKS = [0x300, 0x301, 0x307, 0x308, 0x323, 0x327, 0x345, 0x5B0, 0x64B, 0x653, 0x93C, 0x93F, 0xBBE, 0x1161, 0x11A8, 0x3099, 0x20DD,
         0x200D, 0x1DF6, 0x897, 0x1D165, 0x16D68]
RANGES = [(0x80, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000), (0x20000, 0x40000), (0x40000, 0x110000),
          (0x1F300, 0x1FAFF), (0x4E00, 0x9FFF), (0x1100, 0x11FF), (0xF900, 0xFB50), (0x2F800, 0x2FA20), (0x900, 0xE00)]


def strings(seed, count, tokenizer):
    source = random.Random(seed)
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]

    def piece():
        kind = source.randrange(10)
        if kind == 0:
            return source.choice(SPACES) * source.choice([1, 1, 2, 3, 17, 40])
        if kind == 1:
            return "".join(source.choice(SPACES) for _ in range(source.randrange(1, 5)))
        if kind == 2:
            return source.choice(WORDS)
        if kind == 3:
            return "".join(source.choice(DIGITS) for _ in range(source.randrange(1, 8)))
        if kind == 4:
            return "".join(chr(source.choice(BASES)) + "".join(chr(source.choice(MARKS)) for _ in range(source.randrange(4)))
                           for _ in range(3))
        if kind == 5:
            return source.choice(EMOJI)
        if kind == 6:
            return "".join(chr(source.randrange(0x20, 0x7F)) for _ in range(source.randrange(1, 30)))
        if kind == 7:
            return source.choice(added) if added else ""
        if kind == 8:
            return "".join(chr(source.randrange(0, 0x20)) for _ in range(source.randrange(1, 4)))
        low, high = source.choice(RANGES)
        return "".join(chr(source.randrange(low, high)) for _ in range(source.randrange(1, 8)))

    return ["".join(piece() for _ in range(source.randrange(1, 12))) for _ in range(count)]


def lines(atoll, command, rows):
    """Each row through `atoll tokenizer COMMAND`, JSON lines in and out."""
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    done = subprocess.run([atoll, "tokenizer", *map(str, command)], input=text, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"atoll tokenizer {command[0]}: exit {done.returncode}\n{done.stderr.decode()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def differences(atoll, path, texts, special=False):
    """Texts whose ids, or the text decoded from them, differ: (text, ours, theirs)."""
    reference = Tokenizer.from_file(str(path))
    theirs = [encoded.ids for encoded in reference.encode_batch(texts, add_special_tokens=special)]
    options = ["--special"] if special else []
    ours = [row["ids"] for row in lines(atoll, ["encode", "--tokenizer", path, "--text", "-", "--jsonl", *options],
                                        [{"text": text} for text in texts])]
    assert len(ours) == len(texts), f"{len(texts)} texts, {len(ours)} answers"
    found = [(text, a, b) for text, a, b in zip(texts, ours, theirs) if a != b]
    decoded = [row["text"] for row in lines(atoll, ["decode", "--tokenizer", path, "--ids", "-", "--jsonl"],
                                            [{"ids": ids} for ids in ours])]
    expected = reference.decode_batch(ours, skip_special_tokens=False)
    return found + [(text, a, b) for text, a, b in zip(texts, decoded, expected) if a != b]


def plain_differences(atoll, path, texts, folder):
    """Texts whose ids differ where special tokens in the text are text, as `atoll data pack` reads them."""
    source, store = folder / "texts.jsonl", folder / "plain-store"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    subprocess.run([atoll, "data", "pack", source, "--tokenizer", path, "--out", store, "--validation-share", "0",
                    "--overwrite"], check=True, capture_output=True)
    tokens = numpy.fromfile(store / "tokens-train.npy", dtype=numpy.uint16)
    with gzip.open(store / "tokens-train.csv.gz", "rt", encoding="utf8", newline="") as table:
        rows = [line.split(",") for line in table]
    ours = [tokens[int(row[0]) : int(row[1]) - 1].tolist() for row in rows]
    assert len(ours) == len(texts), f"{len(texts)} texts, {len(ours)} documents"
    reference = Tokenizer.from_file(str(path))
    reference.encode_special_tokens = True
    theirs = [encoded.ids for encoded in reference.encode_batch(texts, add_special_tokens=False)]
    return [(text, a, b) for text, a, b in zip(texts, ours, theirs) if a != b]
