"""Who a process is: a name that survives restarts, and a number that tells its lives apart."""

import msgspec


class Identity(msgspec.Struct, frozen=True):
    """`id` is `role-n` and survives restarts; `incarnation` grows with each life of that id."""

    id: str
    role: str
    node: str
    incarnation: int
