"""Protobuf by descriptor: messages of any type that protoc has described, without code made for them."""
