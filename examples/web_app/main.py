"""A web application that sends what it is asked to, and listens to the same topic.

    GET /send/sync/{message}    answers once the broker has stored the message, and says where
    GET /send/async/{message}   answers at once; the message is sent in the background
    GET /heard                  the last messages the listener has got
    GET /health                 503 if a listener has given up

Run a broker (`make run`), and then: uvicorn examples.web_app.main:web
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass

from fastapi import FastAPI, HTTPException, Response

import ottla

TOPIC = os.environ.get("TOPIC", "messages")

kafka = ottla.App(
    bootstrap_servers=os.environ.get("OTTLA_BOOTSTRAP_SERVERS", "127.0.0.1:9092"),
    group_id=os.environ.get("GROUP_ID", "web-app"),
    auto_offset_reset="earliest",
)
web = FastAPI(title="Ottla in a web application", lifespan=kafka.lifespan)
heard: deque[str] = deque(maxlen=100)


@dataclass
class Message:
    text: str
    length: int


@kafka.listener(TOPIC, concurrency=4, retries=2, dead_letter="{topic}.dlt")
async def on_message(message: Message) -> None:
    if message.length != len(message.text):
        raise ValueError(f"a message of {len(message.text)} characters says it has {message.length}")
    heard.append(message.text)


@web.get("/send/sync/{message}")
async def send_sync(message: str) -> dict[str, object]:
    try:
        stored = await kafka.send(TOPIC, Message(message, len(message)), key=message)
    except ottla.errors.KafkaError as e:
        raise HTTPException(503, f"the message was not stored: {e}") from e
    return {"topic": stored.topic, "partition": stored.partition, "offset": stored.offset}


@web.get("/send/async/{message}", status_code=202)
async def send_async(message: str) -> dict[str, object]:
    kafka.send_soon(TOPIC, Message(message, len(message)), key=message)
    return {"topic": TOPIC}


@web.get("/heard")
async def list_heard() -> list[str]:
    return list(heard)


@web.get("/health")
async def health(response: Response) -> dict[str, str]:
    failures = {name: str(error) for name, error in kafka.failures.items()}
    if failures:
        response.status_code = 503
    return failures
