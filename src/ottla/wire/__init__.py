"""The wire protocol: messages declared once, codecs made from them, frames and headers. Pure: bytes in, values out."""
