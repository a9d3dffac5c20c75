"""An application of Ray Serve that speaks the OpenAI API: it says word0, word1 and so on, max_tokens of them, over a second where it streams."""

import asyncio
import json

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from ray import serve

api = FastAPI()


@serve.deployment
@serve.ingress(api)
class Words:
    @api.post("/v1/chat/completions")
    async def chat(self, request: Request):
        asked = await request.json()
        words = [f"word{i} " for i in range(asked.get("max_tokens", 8))]
        head = {"id": "chatcmpl-1", "created": 1, "model": asked["model"]}
        if not asked.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": "".join(words)}, "finish_reason": "length"}
            usage = {"prompt_tokens": 1, "completion_tokens": len(words), "total_tokens": 1 + len(words)}
            return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}

        async def events():
            for i, word in enumerate(words):
                choice = {"index": 0, "delta": {"content": word}, "finish_reason": "length" if i + 1 == len(words) else None}
                yield f"data: {json.dumps({**head, 'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"
                await asyncio.sleep(1 / len(words))
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")


app = Words.bind()
