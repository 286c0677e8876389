//! Devices, streams, buffers, typed launches and graphs on cust; LLM decoding
