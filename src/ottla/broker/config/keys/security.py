"""Settings about who may do what, and how secrets are kept."""

from __future__ import annotations

from ottla.base.options import Between, OneOf, Option, Type, Update
from ottla.broker.config.keys.reasons import NO_JVM, NOT_YET, PLAIN_TEXT_ONLY

_NO_ACLS = "this version enforces no access rules: everyone may do everything"
_NO_PRINCIPALS = "this version knows no principals: every client is anonymous"
_NO_ENCRYPTION = "this version stores no passwords, so it encrypts none"

OPTIONS = (
    Option(
        "security.inter.broker.protocol",
        Type.STRING,
        "PLAINTEXT",
        "The security protocol brokers use among themselves, unless `inter.broker.listener.name` is set.",
        OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        refused=PLAIN_TEXT_ONLY,
    ),
    Option(
        "security.providers",
        Type.STRING,
        None,
        "Classes of extra Java security providers.",
        importance="low",
        no_effect=NO_JVM,
    ),
    Option(
        "authorizer.class.name",
        Type.STRING,
        "",
        "Turns authorisation on: any class name stands for the built-in authorizer. Empty: everyone may do everything.",
        importance="low",
        refused=_NO_ACLS,
    ),
    Option(
        "super.users",
        Type.STRING,
        "",
        "Principals that may do everything, separated by semicolons (User:admin;User:ops).",
        no_effect=NOT_YET,
    ),
    Option(
        "allow.everyone.if.no.acl.found",
        Type.BOOLEAN,
        False,
        "Whether a resource without any ACL is open to everyone.",
        no_effect=NOT_YET,
    ),
    Option(
        "principal.builder.class",
        Type.CLASS,
        None,
        "The class that derives a principal from a connection.",
        update=Update.PER_BROKER,
        refused=_NO_PRINCIPALS,
    ),
    Option(
        "delegation.token.secret.key",
        Type.PASSWORD,
        None,
        "The key delegation tokens are signed with; the same on every broker. Unset: tokens are off.",
        no_effect=NOT_YET,
    ),
    Option(
        "delegation.token.master.key",
        Type.PASSWORD,
        None,
        "The older name of the key delegation tokens are signed with.",
        deprecated="`delegation.token.secret.key`",
        no_effect=NOT_YET,
    ),
    Option(
        "delegation.token.expiry.time.ms",
        Type.LONG,
        86400000,
        "How long a delegation token is valid unless it is renewed.",
        Between(1),
        no_effect=NOT_YET,
    ),
    Option(
        "delegation.token.max.lifetime.ms",
        Type.LONG,
        604800000,
        "The age after which a delegation token cannot be renewed any more.",
        Between(1),
        no_effect=NOT_YET,
    ),
    Option(
        "password.encoder.secret",
        Type.PASSWORD,
        None,
        "The key passwords are encrypted with when they are set as dynamic configuration.",
        refused=_NO_ENCRYPTION,
    ),
    Option(
        "password.encoder.old.secret",
        Type.PASSWORD,
        None,
        "The previous key, for reading passwords that were stored before a change of keys.",
        refused=_NO_ENCRYPTION,
    ),
    Option(
        "password.encoder.iterations",
        Type.INT,
        4096,
        "Rounds of key derivation for that encryption.",
        Between(1024),
        importance="low",
        no_effect=NOT_YET,
    ),
    Option(
        "password.encoder.key.length",
        Type.INT,
        128,
        "Length in bits of the key derived for that encryption.",
        Between(8),
        importance="low",
        no_effect=NOT_YET,
    ),
    Option(
        "password.encoder.cipher.algorithm",
        Type.STRING,
        "AES/CBC/PKCS5Padding",
        "The cipher of that encryption.",
        importance="low",
        no_effect=NOT_YET,
    ),
    Option(
        "password.encoder.keyfactory.algorithm",
        Type.STRING,
        None,
        "The Java key factory of that encryption.",
        importance="low",
        no_effect=NO_JVM,
    ),
)
