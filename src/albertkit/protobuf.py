"""The protocol buffers of SentencePiece and TensorFlow, in a private descriptor pool.

A schema declares only the fields that albertkit reads or writes. The library keeps all other fields.
"""

import re
from functools import cache
from typing import Any

# SentencePiece: sentencepiece_model.proto. TensorFlow: tensor_bundle.proto and trackable_object_graph.proto.
_SCHEMAS = {
    "proto2": """
        ModelProto: repeated Piece pieces 1, Trainer trainer_spec 2, Normalizer normalizer_spec 3
        Piece: string piece 1, float score 2 = 0, int32 type 3 = 1
        Trainer: int32 model_type 3 = 1, int32 unk_id 40, int32 bos_id 41, int32 eos_id 42, int32 pad_id 43
        Normalizer: bytes precompiled_charsmap 2, bool add_dummy_prefix 3 = true,
            bool remove_extra_whitespaces 4 = true, bool escape_whitespaces 5 = true
    """,
    "proto3": """
        BundleHeader: int32 num_shards 1, int32 endianness 2, Version version 3
        Version: int32 producer 1
        BundleEntry: int32 dtype 1, Shape shape 2, int32 shard_id 3, int64 offset 4, int64 size 5,
            fixed32 crc32c 6, repeated bytes slices 7
        Shape: repeated Dim dim 2, bool unknown_rank 3
        Dim: int64 size 1
        ObjectGraph: repeated Node nodes 1
        Node: repeated Attribute attributes 2
        Attribute: string name 1, string full_name 2, string checkpoint_key 3
    """,
}


@cache
def message_class(name: str) -> Any:
    """Return the class of a message, such as "ModelProto"."""
    # Imported here, because most starts read no protocol buffer.
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for syntax, schema in _SCHEMAS.items():
        pool.Add(_file(syntax, schema))  # type: ignore[attr-defined]
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"albertkit.{name}"))


def _file(syntax: str, schema: str) -> Any:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

    file = FileDescriptorProto(name=f"albertkit/{syntax}.proto", package="albertkit", syntax=syntax)
    for name, declared in re.findall(r"(\w+): ((?:[^,\n]+(?:,\s*)?)+)", schema):
        message = file.message_type.add(name=name)
        for line in declared.split(","):
            words = line.split()
            label = FieldDescriptorProto.LABEL_OPTIONAL
            if words[0] == "repeated":
                label = FieldDescriptorProto.LABEL_REPEATED
                del words[0]
            field = message.field.add(name=words[1], number=int(words[2]), label=label)
            if words[0][0].isupper():
                field.type_name = f".albertkit.{words[0]}"
                field.type = FieldDescriptorProto.TYPE_MESSAGE
            else:
                field.type = getattr(FieldDescriptorProto, f"TYPE_{words[0].upper()}")
            if "=" in words:
                field.default_value = words[-1]
    return file
