"""The least a role can be: it is there. For tests that need a component of no particular kind."""

from bus.member import Member


def main(member: Member) -> None:
    member.live()
    print(f"{member.identity.id} sleeps", flush=True)
    member.wait()
