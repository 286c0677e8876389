//! What programs that speak OpenAI's API rely on: shapes, errors, names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use support::{Answer, Server, tokens, with_keys};

const TEMPLATE: &str = "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}\
                        {{ m.role }}:{{ m.content }};{% endfor %}{{ style }}";

#[track_caller]
fn fails(answer: &Answer, status: u16, code: Value, param: Value, part: &str) {
    let error = &answer.json()["error"];
    let kind = if status >= 500 { "server_error" } else { "invalid_request_error" };
    let got = (answer.status, &error["type"], &error["code"], &error["param"]);
    assert_eq!(got, (status, &json!(kind), &code, &param), "{error}");
    assert!(error["message"].as_str().unwrap().contains(part), "{error}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

#[test]
fn errors_say_what_is_wrong_with_a_request() {
    let server = Server::start(&["--max-body", "20000", "--context", "200"]);
    let null = || Value::Null;
    for (body, status, code, param, part) in [
        (json!({}), 400, null(), json!("prompt"), "no prompt"),
        (json!({ "prompt": "" }), 400, null(), json!("prompt"), "empty"),
        (json!({ "prompt": [] }), 400, null(), json!("prompt"), "empty"),
        (json!({ "prompt": [72, 256] }), 400, null(), json!("prompt"), "token 256 is not in the vocabulary of 256"),
        (json!({ "prompt": ["a", "b"] }), 400, null(), null(), "`prompt` is neither"),
        (json!({ "prompt": "a", "temperature": -1 }), 400, null(), json!("temperature"), "temperature is -1"),
        (json!({ "prompt": "a", "top_p": 1.5 }), 400, null(), json!("top_p"), "top_p is 1.5"),
        (json!({ "prompt": "a", "repetition_penalty": 0 }), 400, null(), json!("repetition_penalty"), "penalty is 0"),
        (json!({ "prompt": "a", "max_tokens": 0 }), 400, null(), json!("max_tokens"), "max_tokens is 0"),
        (json!({ "prompt": "a", "max_tokens": -1 }), 400, null(), null(), "-1"),
        (json!({ "prompt": "a", "stop": "" }), 400, null(), json!("stop"), "empty"),
        (json!({ "prompt": "a", "stop": vec!["x"; 17] }), 400, null(), json!("stop"), "17 texts"),
        (json!({ "prompt": "a", "speed": 1 }), 400, json!("unknown_parameter"), null(), "speed"),
        (json!({ "prompt": "a", "n": 2 }), 400, json!("unsupported_parameter"), null(), "`n`"),
        (json!({ "prompt": "a", "echo": true }), 400, json!("unsupported_parameter"), null(), "`echo`"),
        (json!({ "prompt": "a", "messages": [] }), 400, null(), json!("messages"), "chat"),
        (json!({ "prompt": "a", "model": "other" }), 404, json!("model_not_found"), json!("model"), "\"tiny\""),
        (
            tokens(&"a".repeat(201), 1),
            400,
            json!("context_length_exceeded"),
            json!("prompt"),
            "201 tokens, more than the context of 200",
        ),
        (tokens(&"a".repeat(20_000), 1), 413, json!("body_too_long"), null(), "20000 bytes"),
    ] {
        fails(&server.post("/v1/completions", &body), status, code, param, part);
    }
    // A prompt that fills the context leaves room for one token.
    let full = server.post("/v1/completions", &tokens(&"a".repeat(200), 9)).json();
    assert_eq!(
        (&full["usage"]["completion_tokens"], &full["choices"][0]["finish_reason"]),
        (&json!(1), &json!("length"))
    );

    let mut client = server.connect();
    for (request, status, part) in [
        ("GET /v1/elsewhere HTTP/1.1\r\nHost: a\r\n\r\n", 404, "/v1/chat/completions"),
        ("GET /v1/completions HTTP/1.1\r\nHost: a\r\n\r\n", 405, "not take GET, but POST"),
        ("DELETE /health HTTP/1.1\r\nHost: a\r\n\r\n", 405, "not take DELETE, but GET"),
        ("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", 415, "application/json"),
        (
            "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
            415,
            "text/plain",
        ),
        (
            "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n\
             Content-Length: 2\r\n\r\n{}",
            415,
            "gzip",
        ),
        (
            "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n{",
            400,
            "EOF",
        ),
        ("GET /v1/models/other HTTP/1.1\r\nHost: a\r\n\r\n", 404, "no model \"other\""),
    ] {
        client.send(request);
        let answer = client.answer();
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains(part), "{answer:?}");
        assert_eq!(answer.status, status, "{request}");
        // A body that is not read ends the connection, or is read over.
        if status == 415 {
            client = server.connect();
        }
    }
    assert_eq!(server.metric("requests_ended_total"), 1.0, "what is refused does not reach the engine");
}

#[test]
fn fields_that_ask_for_nothing_are_taken() {
    let server = Server::start(&[]);
    let body = json!({
        "model": "tiny", "prompt": [72, 105, 33], "max_tokens": 2, "n": 1, "best_of": 1, "echo": false,
        "logprobs": null, "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "suffix": null, "user": "me",
        "temperature": null, "stop": null, "stream": null, "seed": -3,
    });
    let answer = server.post("/v1/completions", &body).json();
    assert_eq!(answer["usage"], json!({ "prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5 }));
    let by_text = server.post("/v1/completions", &json!({ "prompt": ["Hi!"], "max_tokens": 2 })).text();
    assert_eq!(answer["choices"][0]["text"], by_text.as_str());
    assert_eq!((&answer["object"], &answer["model"]), (&json!("text_completion"), &json!("tiny")));
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-") && answer["created"].as_u64().unwrap() > 1_700_000_000);
}

#[test]
fn chats_are_completions_of_what_the_template_makes_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = with_keys(folder.path(), &[("tokenizer.chat_template", TEMPLATE)], &[]);
    let server = Server::of(&path, &[], &[]);
    let messages = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": [{ "type": "text", "text": "What is" }, { "type": "text", "text": " a warp?" }] },
    ]);
    let body = json!({ "messages": messages, "max_completion_tokens": 9, "chat_template_kwargs": { "style": "now" } });
    let chat = server.post("/v1/chat/completions", &body).json();
    let rendered = "system:Be brief.;user:What is a warp?;now";
    let text = server.post("/v1/completions", &tokens(rendered, 9)).json();
    assert_eq!(chat["choices"][0]["message"]["content"], text["choices"][0]["text"]);
    assert_eq!(
        (&chat["choices"][0]["message"]["role"], &chat["object"]),
        (&json!("assistant"), &json!("chat.completion"))
    );
    assert_eq!(chat["usage"], text["usage"]);
    assert_eq!(chat["usage"]["prompt_tokens"], rendered.len());
    assert_eq!(chat["choices"][0]["finish_reason"], text["choices"][0]["finish_reason"]);

    let mut body = body;
    body["stream"] = true.into();
    for usage in [false, true] {
        if usage {
            body["stream_options"] = json!({ "include_usage": true });
        }
        let mut events = server.post("/v1/chat/completions", &body).events();
        if usage {
            let last = events.pop().unwrap();
            assert_eq!((&last["usage"], &last["choices"]), (&chat["usage"], &json!([])));
        }
        assert!(events.iter().all(|e| e["object"] == "chat.completion.chunk" && e["id"] == events[0]["id"]));
        assert!(events.iter().all(|e| e.get("usage").is_some() == usage), "{events:?}");
        assert_eq!(events[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], chat["choices"][0]["finish_reason"]);
        let text: String = events.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, chat["choices"][0]["message"]["content"].as_str().unwrap());
    }

    // Probabilities of a chat: the bytes of its tokens are the text, and the most likely one is what is generated.
    (body["stream"], body["stream_options"]) = (false.into(), Value::Null);
    (body["logprobs"], body["top_logprobs"]) = (true.into(), 2.into());
    let told = server.post("/v1/chat/completions", &body).json();
    let content = told["choices"][0]["logprobs"]["content"].as_array().unwrap();
    let bytes =
        |v: &Value| v["bytes"].as_array().unwrap().iter().map(|b| b.as_u64().unwrap() as u8).collect::<Vec<u8>>();
    let all: Vec<u8> = content.iter().flat_map(bytes).collect();
    assert_eq!(String::from_utf8_lossy(&all), chat["choices"][0]["message"]["content"].as_str().unwrap());
    for token in content {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!((top.len(), &top[0]["bytes"], &top[0]["logprob"]), (2, &token["bytes"], &token["logprob"]));
        assert!(top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64() && top[0]["logprob"].as_f64() <= Some(0.0));
    }

    let chat = |messages: Value| server.post("/v1/chat/completions", &json!({ "messages": messages, "max_tokens": 1 }));
    let param = || json!("messages");
    fails(&chat(json!([])), 400, Value::Null, param(), "no messages");
    fails(&chat(json!([{ "role": "tool", "content": "x" }])), 400, Value::Null, param(), "no tools");
    fails(
        &chat(json!([{ "role": "user", "content": "a".repeat(600) }])),
        400,
        json!("context_length_exceeded"),
        param(),
        "512",
    );
    fails(
        &chat(json!([{ "role": "user", "content": [{ "type": "image_url" }] }])),
        400,
        Value::Null,
        Value::Null,
        "parts of type text",
    );
    let tools = json!({ "messages": [], "tools": [{ "type": "function" }] });
    fails(&server.post("/v1/chat/completions", &tools), 400, json!("unsupported_parameter"), Value::Null, "tools");
}

#[test]
fn models_health_and_metrics() {
    let server = Server::start(&[]);
    let list = server.get("/v1/models").json();
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&json!("list"), &json!("tiny")));
    assert_eq!(server.get("/v1/models/tiny").json(), list["data"][0]);
    assert_eq!(server.get("/health").json()["status"], "ok");
    // Without a template there are completions, but no conversations.
    let chat = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
    fails(&server.post("/v1/chat/completions", &chat), 400, json!("no_chat_template"), Value::Null, "--chat-template");
    server.post("/v1/completions", &tokens("Hi", 4)).text();

    let metrics = server.get("/metrics");
    assert!(metrics.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let text = String::from_utf8(metrics.body).unwrap();
    for line in [
        "warpsmith_http_requests_total{route=\"/health\",status=\"200\"} 1",
        "warpsmith_http_requests_total{route=\"/v1/chat/completions\",status=\"400\"} 1",
        "warpsmith_requests_ended_total{reason=\"length\"} 1",
        "warpsmith_prompt_tokens_total 2",
        "warpsmith_generated_tokens_total 4",
        "warpsmith_steps_total 4",
        "warpsmith_requests_queued 0",
        "warpsmith_request_seconds_count 1",
        "warpsmith_first_token_seconds_count 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    server.until("connections", |open| open == 1.0);
    assert!(server.metric("step_seconds_total") > 0.0);
    assert!(text.ends_with("# EOF\n"));
}

/// Probabilities of what was generated, whole and streamed, in the shapes of both APIs; text and tokens are the same without.
#[test]
fn probabilities_come_with_the_tokens() {
    let server = Server::start(&["--draft", "2"]);
    let plain = server.post("/v1/completions", &tokens("Hi, GPU!", 6)).text();
    let mut body = tokens("Hi, GPU!", 6);
    body["logprobs"] = 3.into();
    let answer = server.post("/v1/completions", &body).json();
    let (choice, told) = (&answer["choices"][0], &answer["choices"][0]["logprobs"]);
    assert_eq!(choice["text"], plain);
    let list = |name: &str| told[name].as_array().unwrap().clone();
    // Tokens that are no text alone are replacement characters.
    assert_eq!((list("tokens").len(), list("token_logprobs").len()), (6, 6));
    assert_eq!(list("text_offset")[0], 0);
    for ((token, own), top) in list("tokens").iter().zip(list("token_logprobs")).zip(list("top_logprobs")) {
        let top = top.as_object().unwrap();
        let largest = top.values().map(|v| v.as_f64().unwrap()).fold(f64::MIN, f64::max);
        // Greedy: what is generated is the most likely one.
        assert!((1..=3).contains(&top.len()) && top.contains_key(token.as_str().unwrap()), "{top:?}");
        assert_eq!(own.as_f64(), Some(largest));
        assert!(top.values().map(|v| v.as_f64().unwrap().exp()).sum::<f64>() < 1.00001);
    }
    body["stream"] = true.into();
    let events = server.post("/v1/completions", &body).events();
    let streamed: Vec<Value> = events
        .iter()
        .filter_map(|e| e["choices"][0]["logprobs"]["token_logprobs"].as_array())
        .flatten()
        .cloned()
        .collect();
    assert_eq!(streamed, list("token_logprobs"));
    let bad = |name: &str, value: Value, param: &str| {
        let mut body = tokens("Hi", 2);
        body[name] = value;
        fails(&server.post("/v1/completions", &body), 400, Value::Null, json!(param), param);
    };
    bad("logprobs", json!(21), "logprobs");
    bad("logprobs", json!(true), "logprobs");
    bad("logprobs", json!("all"), "logprobs");
    bad("top_logprobs", json!(2), "top_logprobs");
}
