// Not run: the compiler checks that what we export fits what the frameworks ask for.
import type { SessionStore } from '@anthropic-ai/claude-agent-sdk';
import { foldSessionSummary } from '@anthropic-ai/claude-agent-sdk';
import type { BaseCheckpointSaver } from '@langchain/langgraph-checkpoint';
import type { EventStore } from '@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js';
import type { Session, SessionHistoryRewriteAwareSession, SessionHistoryTransactionAwareSession } from '@openai/agents-core';
import type { UIMessage } from 'ai';
import { Client } from 'hansard';
import { HansardChats } from 'hansard/ai-sdk';
import { HansardSessionStore } from 'hansard/claude';
import { HansardSaver } from 'hansard/langgraph';
import { HansardEventStore } from 'hansard/mcp';
import { HansardSession } from 'hansard/openai-agents';

const client = new Client('http://127.0.0.1:4267');
export const claude: SessionStore = new HansardSessionStore(client, { foldSessionSummary });
export const agents: Session & SessionHistoryRewriteAwareSession & SessionHistoryTransactionAwareSession = new HansardSession(client);
export const mcp: EventStore = new HansardEventStore(client, 'x');
export const langgraph: BaseCheckpointSaver = new HansardSaver(client);
export const chats: Promise<UIMessage[]> = new HansardChats<UIMessage>(client).load('x');
