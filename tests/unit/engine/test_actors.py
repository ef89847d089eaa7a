"""Messages to actors: handled in order, with state, within the commit; replies, idempotency keys, failures."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
import pytest

from tests.support import bounded_run
from tidegate import (
    DEAD_LETTER,
    SKIP,
    STOP,
    App,
    Context,
    Default,
    Monotonic,
    ProcessFunction,
    RejectedError,
    Request,
    ValueState,
    on,
    retry,
)
from tidegate.errors import (
    AskTimeoutError,
    DecodeError,
    EncodeError,
    IdempotencyError,
    InsideHandlerError,
    MessageFailedError,
    ServiceFailedError,
    UnknownMessageError,
    UnknownNameError,
    UsageError,
)
from tidegate.functions.policies import ErrorPolicy
from tidegate.testing import AppHarness

Count = Annotated[ValueState[int], Default(0)]


class Deposit(msgspec.Struct, frozen=True):
    amount: int


class Withdraw(msgspec.Struct, frozen=True):
    amount: int


class Transfer(msgspec.Struct, frozen=True):
    to: str
    amount: int


class Balance(msgspec.Struct, frozen=True):
    pass


class Receipt(msgspec.Struct, frozen=True):
    balance: int


def bank(errors: ErrorPolicy = DEAD_LETTER, **options: Any) -> App:
    app = App("bank")
    account = app.actor("account", errors=errors, **options)

    @account.on(Deposit)
    async def deposit(ctx: Context, message: Deposit, balance: Count) -> None:
        if message.amount < 0:
            raise ValueError("less than nothing")
        balance.value += message.amount

    @account.on(Withdraw, reply=Receipt)
    async def withdraw(ctx: Context, message: Withdraw, balance: ValueState[int]) -> None:
        balance.value -= message.amount
        if balance.value < 0:
            raise RejectedError(f"{ctx.key} has not enough")
        ctx.reply(Receipt(balance.value))

    @account.on(Transfer)
    async def transfer(ctx: Context, message: Transfer, balance: ValueState[int]) -> None:
        balance.value -= message.amount
        ctx.tell(account, message.to, Deposit(message.amount))

    @account.on(Balance, reply=int)
    async def look(ctx: Context, message: Balance, balance: ValueState[int]) -> None:
        ctx.reply(balance.value)

    return app


def test_a_message_is_handled_by_the_actor_of_its_key_and_answered_with_its_type() -> None:
    with AppHarness(bank()) as harness:
        harness.tell("account", "ann", Deposit(10))
        harness.tell("account", "bob", Deposit(1))
        assert harness.ask("account", "ann", Withdraw(3)) == Receipt(7)
        assert harness.ask("account", "ann", Balance()) == 7
        assert harness.state("account", "balance", "bob") == 1


def test_an_ask_whose_handler_does_not_reply_is_answered_with_none_when_it_is_done() -> None:
    with AppHarness(bank()) as harness:
        assert harness.ask("account", "ann", Deposit(10)) is None
        assert harness.state("account", "balance", "ann") == 10


class Audit(msgspec.Struct, Request[Receipt], frozen=True):
    """AskResult if the actor is asked to."""

    answer: bool = True


class Peek(msgspec.Struct, Request[int | None], frozen=True):
    pass


def audited() -> App:
    app = App("audited")
    account = app.actor("account")

    @account.on(Audit)
    async def audit(ctx: Context, message: Audit, asked: Count) -> None:
        asked.value += 1
        if message.answer:
            ctx.reply(Receipt(asked.value))

    @account.on(Peek)
    async def peek(ctx: Context, message: Peek, asked: Count) -> None:
        ctx.reply(None if asked.value == 0 else asked.value)

    return app


def test_a_request_is_answered_with_a_value_of_its_type() -> None:
    with AppHarness(audited()) as harness:
        receipt = harness.ask("account", "ann", Audit())
        assert receipt.balance == 1
        assert harness.ask("account", "ann", Peek()) == 1


def test_a_handler_that_does_not_reply_to_a_request_fails() -> None:
    with AppHarness(audited()) as harness:
        with pytest.raises(MessageFailedError, match=r"Request\[Receipt\]: call ctx\.reply\(Receipt\("):
            harness.ask("account", "ann", Audit(answer=False))
        assert harness.state("account", "asked", "ann") is None
        assert harness.ask("account", "ann", Peek()) is None


def test_an_actors_tell_arrives_with_its_commit() -> None:
    with AppHarness(bank(), partitions=3) as harness:
        harness.tell("account", "ann", Deposit(10))
        harness.tell("account", "ann", Transfer("bob", 4))
        assert harness.ask("account", "ann", Balance()) == 6
        assert harness.ask("account", "bob", Balance()) == 4


def test_a_tell_carries_its_senders_stamp_and_stays_decodable() -> None:
    with AppHarness(bank()) as harness:
        harness.tell("account", "ann", Transfer("bob", 4))
        first, second = harness.records("bank.account.mailbox")
        assert (first.key, first.value) == ("ann", {"to": "bob", "amount": 4})
        assert dict(first.headers) == {"tidegate-message": b"Transfer"}
        assert (second.key, second.value) == ("bob", {"amount": 4})
        raw = next(record for _, record in harness._read("bank.account.mailbox") if record.key == b"bob")
        assert dict(raw.headers)["tidegate"].startswith(b"bank|1|account.0|")


def test_a_rejection_undoes_the_handler_and_reaches_the_asker_whatever_the_policy() -> None:
    for policy in (STOP, SKIP, DEAD_LETTER, retry(3)):
        with AppHarness(bank(policy)) as harness:
            harness.tell("account", "ann", Deposit(10))
            with pytest.raises(RejectedError, match="ann has not enough"):
                harness.ask("account", "ann", Withdraw(11))
            harness.tell("account", "ann", Withdraw(11))
            assert harness.ask("account", "ann", Balance()) == 10


@pytest.mark.parametrize("address", [b"junk", b"a|b|c", b"-1|caller|1", b"\xff|caller|1"])
def test_a_message_with_an_invalid_reply_address_is_handled_without_a_reply(address: bytes) -> None:
    headers = [("tidegate-message", b"Deposit"), ("tidegate-reply-to", address)]
    with AppHarness(bank()) as harness:
        harness.send_raw("bank.account.mailbox", key=b"ann", value=b'{"amount":1}', headers=headers)
        harness.send_raw("bank.account.mailbox", key=b"ann", value=b"junk", headers=headers)

        assert harness.ask("account", "ann", Balance()) == 1
        assert len(harness.records("bank.account.dead-letters")) == 1


def test_a_message_whose_idempotency_key_is_not_text_cannot_be_read() -> None:
    headers = [("tidegate-message", b"Deposit"), ("tidegate-idempotency-key", b"\xff")]
    with AppHarness(bank()) as harness:
        harness.tell("account", "ann", Deposit(10))
        harness.send_raw("bank.account.mailbox", key=b"ann", value=b'{"amount":1}', headers=headers)

        assert harness.ask("account", "ann", Balance()) == 10
        assert len(harness.records("bank.account.dead-letters")) == 1


@pytest.mark.parametrize("policy", [SKIP, DEAD_LETTER])
def test_a_client_gets_the_error_of_a_finally_failed_handler(policy: ErrorPolicy) -> None:
    with AppHarness(bank(policy)) as harness:
        with pytest.raises(MessageFailedError, match="ValueError: less than nothing"):
            harness.ask("account", "ann", Deposit(-1))
        assert harness.state("account", "balance", "ann") is None
        if policy is DEAD_LETTER:
            (letter,) = harness.dead_letters("account")
            assert letter.value == b'{"amount":-1}'


def test_a_retried_handler_replies_after_its_success_or_final_failure() -> None:
    with AppHarness(bank(retry(2, 1.0, then=SKIP))) as harness:
        with pytest.raises(AskTimeoutError):
            harness.ask("account", "ann", Deposit(-1))
        assert harness.records("bank.replies") == []
        harness.advance(seconds=10)
        (reply,) = harness.records("bank.replies")
        assert dict(reply.headers)["tidegate-outcome"] == b"failed"


def test_policy_stop_stops_the_service_and_nothing_of_the_message_is_committed() -> None:
    harness = AppHarness(bank(STOP))
    with pytest.raises(ServiceFailedError), harness:
        harness.ask("account", "ann", Deposit(-1))


def test_a_repeated_idempotency_key_is_handled_once_and_gets_the_same_reply() -> None:
    with AppHarness(bank()) as harness:
        harness.tell("account", "ann", Deposit(10), idempotency_key="d1")
        harness.tell("account", "ann", Deposit(10), idempotency_key="d1")
        replies = [harness.ask("account", "ann", Withdraw(3), idempotency_key="w1") for _ in range(3)]
        assert replies == [Receipt(7)] * 3
        harness.tell("account", "bob", Deposit(5), idempotency_key="d1")  # another actor knows nothing of it
        assert harness.ask("account", "ann", Balance()) == 7
        assert harness.ask("account", "bob", Balance()) == 5


def test_remembered_replies_survive_a_crash_and_expire() -> None:
    with AppHarness(bank(remember=60)) as harness:
        harness.ask("account", "ann", Deposit(10), idempotency_key="d1")
        harness.crash()
        harness.ask("account", "ann", Deposit(10), idempotency_key="d1")
        assert harness.ask("account", "ann", Balance()) == 10
        harness.advance(seconds=61)
        harness.ask("account", "ann", Deposit(10), idempotency_key="d1")
        assert harness.ask("account", "ann", Balance()) == 20


def test_another_message_under_a_known_idempotency_key_is_refused() -> None:
    with AppHarness(bank()) as harness:
        harness.ask("account", "ann", Deposit(10), idempotency_key="d1")
        with pytest.raises(IdempotencyError, match="'d1'"):
            harness.ask("account", "ann", Deposit(11), idempotency_key="d1")
        assert harness.ask("account", "ann", Balance()) == 10


def test_a_rejected_message_is_tried_again_under_its_idempotency_key() -> None:
    with AppHarness(bank()) as harness:
        with pytest.raises(RejectedError):
            harness.ask("account", "ann", Withdraw(1), idempotency_key="w")
        harness.tell("account", "ann", Deposit(10))
        assert harness.ask("account", "ann", Withdraw(1), idempotency_key="w") == Receipt(9)


def test_an_empty_or_oversized_idempotency_key_is_refused() -> None:
    with AppHarness(bank()) as harness:
        for key in ("", "x" * 257):
            with pytest.raises(EncodeError, match="1 to 256 characters"):
                harness.tell("account", "ann", Deposit(1), idempotency_key=key)


def test_a_handler_that_waits_keeps_its_key_in_order_and_replies_in_the_end() -> None:
    app = App("waiting")
    account = app.actor("account")

    @account.on(Deposit, reply=int)
    async def deposit(ctx: Context, message: Deposit, balance: Count) -> None:
        if message.amount == 1:
            await asyncio.sleep(0.05)
        balance.value = balance.value * 10 + message.amount
        ctx.reply(balance.value)

    with AppHarness(app) as harness:
        harness.tell(account, "ann", Deposit(1), idempotency_key="one", settle=False)
        harness.tell(account, "ann", Deposit(2), settle=False)
        assert harness.ask(account, "ann", Deposit(1), idempotency_key="one") == 1
        assert harness.ask(account, "ann", Deposit(3)) == 123


def test_a_service_with_topics_handles_messages_in_the_same_state() -> None:
    for partitions in (1, 4):
        app = App("mixed", watermark=Monotonic())
        clicks = app.topic("clicks", value_type=int, key=lambda click: f"k{click % 7}")

        @app.process(clicks)
        async def counter(ctx: Context, click: int, seen: Count) -> None:
            seen.value += 1

        @counter.on(Balance, reply=int)
        async def look(ctx: Context, message: Balance, seen: ValueState[int]) -> None:
            assert not ctx.late
            ctx.reply(seen.value)

        with AppHarness(app, partitions=partitions) as harness:
            harness.send_many(clicks, range(70), timestamp=5000)
            assert [harness.ask(counter, f"k{i}", Balance(), timestamp=1) for i in range(7)] == [10] * 7
            assert harness.watermark(counter) < 5000, "messages tell no time"


@pytest.mark.parametrize("placed", [{"key_by": "who"}, {"parallelism": 5}, {"key_by": "who", "parallelism": 2}])
def test_a_service_behind_a_shuffle_takes_messages_where_its_keys_are(placed: dict[str, Any]) -> None:
    app = App("shuffled")
    clicks = app.topic("clicks", value_type=dict, partitions=3, key="who")

    @app.process(clicks, **placed)
    async def counter(ctx: Context, click: dict[str, Any], seen: Count) -> None:
        seen.value += 1

    @counter.on(Balance, reply=int)
    async def look(ctx: Context, message: Balance, seen: ValueState[int]) -> None:
        ctx.reply(seen.value)

    with AppHarness(app) as harness:
        for i in range(20):
            harness.send(clicks, {"who": f"p{i}"}, timestamp=1000 * i, settle=False)
        harness.settle()
        assert [harness.ask(counter, f"p{i}", Balance(), timestamp=1) for i in range(20)] == [1] * 20
        before = harness.watermark(counter)
        for i in range(20):
            harness.send(clicks, {"who": f"p{i}"}, timestamp=50_000, settle=False)
        harness.settle()
        assert harness.watermark(counter) > before, "the mailbox holds no time back"


class Account(ProcessFunction[Any, Any]):
    balance: Count

    @on(Deposit)
    async def deposit(self, ctx: Context, message: Deposit) -> None:
        self.balance.value += message.amount
        ctx.timers.after(60, name="interest", time="processing")

    @on(Balance, name="balance", reply=int)
    async def look(self, ctx: Context, message: Balance) -> None:
        ctx.reply(self.balance.value)

    async def on_timer(self, ctx: Context, timer: object) -> None:
        self.balance.value += 1


def test_the_class_form_marks_methods() -> None:
    app = App("classes")
    account = app.actor(Account, key_type=int)
    with AppHarness(app) as harness:
        harness.tell(account, 7, Deposit(10))
        harness.advance(seconds=60)
        assert harness.ask("account", 7, Balance()) == 11
        assert [type(message) for _, message in harness.told(account)] == [Deposit, Balance]


def test_the_harness_shows_the_tells_of_a_single_service() -> None:
    app = App("alone")
    words = app.topic("words", value_type=str, key=lambda word: word)
    other = app.actor("other")

    @other.on(Deposit)
    async def deposit(ctx: Context, message: Deposit) -> None:
        raise AssertionError("it does not run")

    @app.process(words)
    async def teller(ctx: Context, word: str) -> None:
        ctx.tell(other, word, Deposit(len(word)))
        ctx.tell("other", "all", Deposit(1))

    with AppHarness(app, services=[teller]) as harness:
        harness.send(words, "hello")
        assert harness.told("other") == [("hello", Deposit(5)), ("all", Deposit(1))]


def test_a_failed_handler_sends_no_messages_and_no_reply() -> None:
    app = App("failing")
    words = app.topic("words", value_type=str, key=lambda word: word)
    other = app.actor("other")

    @other.on(Deposit)
    async def deposit(ctx: Context, message: Deposit, balance: Count) -> None:
        balance.value += message.amount

    @app.process(words, errors=SKIP)
    async def teller(ctx: Context, word: str) -> None:
        ctx.tell(other, "all", Deposit(1))
        if word == "wait":
            await asyncio.sleep(0)
        if word != "fine":
            raise ValueError(word)

    with AppHarness(app) as harness:
        for word in ("bad", "wait", "fine"):
            harness.send(words, word)
        assert harness.state(other, "balance", "all") == 1


def misuse(act: Any) -> str:
    """What a handler of an event that does this is told."""
    app = App("misuse")
    words = app.topic("words", value_type=str, key=lambda word: word)
    other = app.actor("other")

    @other.on(Deposit, reply=int)
    async def deposit(ctx: Context, message: Deposit) -> None:
        await act(ctx, other)

    @app.process(words, errors=DEAD_LETTER)
    async def handler(ctx: Context, word: str) -> None:
        await act(ctx, other)

    with AppHarness(app) as harness:
        harness.send(words, "a")
        (letter,) = harness.dead_letters(handler)
        return f"{letter.error_type}: {letter.error}"


def test_asking_and_telling_past_the_context_are_refused_in_a_handler() -> None:
    async def ask(ctx: Context, other: Any) -> None:
        await other.ask("k", Deposit(1))

    async def tell(ctx: Context, other: Any) -> None:
        await asyncio.sleep(0)
        await other.tell("k", Deposit(1))

    assert InsideHandlerError.__name__ in misuse(ask)
    assert "Use ctx.tell(other, key, message), and have 'other' tell the answer back" in misuse(ask)
    assert "Use ctx.tell(other, key, message)" in misuse(tell)


def test_only_the_handler_of_a_message_replies() -> None:
    async def reply(ctx: Context, other: Any) -> None:
        ctx.reply(1)

    assert "handles no message" in misuse(reply)


def test_a_message_without_a_handler_is_refused_at_the_sender() -> None:
    async def tell(ctx: Context, other: Any) -> None:
        ctx.tell(other, "k", 5)

    async def nobody(ctx: Context, other: Any) -> None:
        ctx.tell("handler", "k", 5)

    expected = "service 'other' handles no message 'int'; it handles: Deposit."
    assert f"{UnknownMessageError.__name__}: {expected}" in misuse(tell)
    assert UnknownNameError.__name__ in misuse(nobody)
    with AppHarness(bank()) as harness, pytest.raises(UnknownMessageError, match="handles: Deposit, Withdraw"):
        harness.tell("account", "ann", 5)


def test_a_reply_of_another_type_or_a_second_one_is_a_failure_of_the_handler() -> None:
    app = App("replies")
    actor = app.actor("actor")

    @actor.on(Deposit, reply=int)
    async def wrong(ctx: Context, message: Deposit) -> None:
        ctx.reply("text")

    @actor.on(Withdraw, reply=int)
    async def twice(ctx: Context, message: Withdraw) -> None:
        ctx.reply(1)
        ctx.reply(1)

    with AppHarness(app) as harness:
        with pytest.raises(MessageFailedError, match=EncodeError.__name__):
            harness.ask(actor, "k", Deposit(1))
        with pytest.raises(MessageFailedError, match="replies twice"):
            harness.ask(actor, "k", Withdraw(1))


def test_an_invalid_mailbox_record_follows_the_error_policy() -> None:
    with AppHarness(bank()) as harness:
        box = "bank.account.mailbox"
        harness.send_raw(box, key=b"a", value=b"{}", headers=[("tidegate-message", b"Gone")])
        harness.send_raw(box, key=b"a", value=b"{}", headers=[("tidegate-message", b"Deposit")])
        harness.send_raw(box, key=b"a", value=b"{}")
        harness.send_raw(box, key=None, value=b'{"amount":1}', headers=[("tidegate-message", b"Deposit")])
        letters = harness.dead_letters("account")
        assert [letter.error_type for letter in letters] == [DecodeError.__name__] * 3 + ["MissingKeyError"]


def test_timers_of_an_actor_go_by_the_clock() -> None:
    app = App("timers")
    actor = app.actor("actor")

    @actor.on(Deposit)
    async def deposit(ctx: Context, message: Deposit) -> None:
        ctx.timers.after(5, name="later")

    @actor.on_timer("later")
    async def later(ctx: Context) -> None:
        raise AssertionError("it cannot be set")

    with AppHarness(app) as harness, pytest.raises(MessageFailedError, match="time='processing'"):
        harness.ask(actor, "k", Deposit(1))


def test_a_service_without_messages_has_no_mailbox_and_an_app_without_such_no_replies() -> None:
    app = App("plain")
    words = app.topic("words", value_type=str, key=lambda word: word)

    @app.process(words)
    async def handler(ctx: Context, word: str) -> None: ...

    with AppHarness(app) as harness:
        assert set(harness.engine.plan.topics) == {"words"}
        assert set(harness.engine.plan.services["handler"].states) == set()
        with pytest.raises(UnknownMessageError, match="'handler' handles no messages"):
            harness.tell(handler, "k", 5)


def test_a_bounded_run_of_an_actor_ends_with_its_mailbox() -> None:
    with AppHarness(bank()) as harness:
        harness.tell("account", "ann", Deposit(5))
        harness.tell("account", "ann", Transfer("bob", 4), settle=False)
        bounded_run(harness)
        assert harness.state("account", "balance", "bob") == 4
        assert harness.state("account", "balance", "ann") == 1


def test_an_actor_without_messages_is_a_mistake() -> None:
    app = App("empty")
    app.actor("nothing")
    with pytest.raises(UsageError, match=r"@nothing\.on\(MessageType\)"), AppHarness(app):
        pass
