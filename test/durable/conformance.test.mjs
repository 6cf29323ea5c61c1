import { runConformanceTests } from '@durable-streams/server-conformance-tests';

runConformanceTests({ baseUrl: process.env.STREAMS_URL, longPollTimeoutMs: Number(process.env.LONG_POLL_MS) });
