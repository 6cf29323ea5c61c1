package conversations

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"hansard"
	"hansard/engine"
)

// maxTries is how often a conditional write is tried when other writers get in first.
// After that the SDKs retry.
const maxTries = 64

// create makes a conversation, with its first items in the same commit.
func (h *handler) create(ctx context.Context, r *request) ([]byte, error) {
	meta, err := parseMetadata(r.body)
	if err != nil {
		return nil, err
	}
	r.id = newConversationID(r.key)
	if s, ok := h.store.(scoped); ok {
		r.id = s.ScopedID(ctx, r.id)
	}
	shapes, err := r.parseItems(false)
	if err != nil {
		return nil, err
	}
	for i, s := range shapes {
		if _, made := parseItemID(r.id, s.given); made {
			return nil, notYours(i, s.given)
		}
	}
	patch, err := meta.replacing(&hansard.Info{}, nil)
	if err != nil {
		return nil, err
	}
	if len(shapes) == 0 && r.key == "" {
		created, err := engine.ApplyPatch(r.id, hansard.Meta{}, patch)
		if err != nil {
			return nil, err
		}
		info, err := h.store.Create(ctx, r.id, created)
		return conversation(&info), err
	}
	if len(shapes) == 0 && patch == nil {
		patch = &hansard.Patch{} // an empty one is still an event, which keeps the key
	}
	b := hansard.Batch{Create: true, Expect: hansard.At(0), Key: r.key, Turn: r.turn, Patch: patch, Events: r.events(shapes)}
	if _, err := h.store.Append(ctx, r.id, b); err != nil {
		if errors.Is(err, hansard.ErrDeleted) {
			return nil, &apiError{status: http.StatusConflict, kind: kindRequest, param: keyHeader, code: "conversation_deleted",
				message: fmt.Sprintf("Conversation '%s', which was created with this Idempotency-Key, was deleted.", r.id)}
		}
		return nil, err
	}
	return h.stored(ctx, r)
}

// newConversationID returns a random id, or one derived from the key of the
// request, so that a retry finds what the first try made.
func newConversationID(key string) hansard.SessionID {
	var name [24]byte
	if key == "" {
		_, _ = rand.Read(name[:]) // never fails: it ends the program instead
	} else {
		sum := sha256.Sum256([]byte("conversation for key " + key))
		copy(name[:], sum[:])
	}
	return hansard.SessionID("conv_" + hex.EncodeToString(name[:]))
}

func (h *handler) retrieve(ctx context.Context, r *request) ([]byte, error) {
	info, err := h.store.Stat(ctx, r.id)
	if err == nil && info.Damage != nil {
		err = info.Damage
	}
	return conversation(&info), err
}

// stored answers a request that was stored with the conversation. If that can't be read the
// error must not say that nothing was stored: an SDK would send the request again.
func (h *handler) stored(ctx context.Context, r *request) ([]byte, error) {
	body, err := h.retrieve(ctx, r)
	if err != nil && !errors.Is(err, hansard.ErrNotFound) && !errors.Is(err, hansard.ErrDeleted) {
		err = fmt.Errorf("%w: it is stored, but reading it failed: %w", hansard.ErrUnknown, err)
	}
	return body, err
}

// conversation is the API's object for a session.
func conversation(info *hansard.Info) []byte {
	return fmt.Appendf(nil, `{"id":%s,"object":"conversation","created_at":%d,"metadata":%s}`,
		quote(string(info.ID)), info.Created.Unix(), metadataOf(info).json())
}

// update replaces the metadata. What it removes depends on what is there, so the
// write has the condition that nobody else has written in the meantime.
func (h *handler) update(ctx context.Context, r *request) ([]byte, error) {
	if r.body.value("metadata") == nil {
		return nil, badRequest("metadata", "missing_required_parameter", "Missing required parameter: 'metadata'.")
	}
	meta, err := parseMetadata(r.body)
	if err != nil {
		return nil, err
	}
	// The event keeps the requested metadata; the patch is what that changes.
	ask := hansard.Event{Kind: hansard.KindMeta, Data: []byte(`{"metadata":` + string(meta.json()) + `}`)}
	for range maxTries {
		info, err := h.store.Stat(ctx, r.id)
		if err != nil {
			return nil, err
		}
		patch, err := meta.replacing(&info, h.fixed(ctx))
		if err != nil {
			return nil, err
		}
		if patch == nil && r.key == "" {
			return h.retrieve(ctx, r)
		}
		b := hansard.Batch{Events: []hansard.Event{ask}, Patch: patch, Expect: hansard.At(info.LastSeq), Key: r.key, Turn: r.turn}
		_, err = h.store.Append(ctx, r.id, b)
		var reused *hansard.KeyReusedError
		switch {
		case errors.As(err, &reused):
			// The same request may have led to a different patch the first time.
			first, readErr := h.eventAt(ctx, r.id, reused.First)
			if readErr != nil {
				return nil, readErr
			}
			if first == nil || first.Kind != ask.Kind || !bytes.Equal(first.Data, ask.Data) {
				return nil, err
			}
		case errors.Is(err, hansard.ErrConflict):
			continue
		case err != nil:
			return nil, err
		}
		return h.stored(ctx, r)
	}
	return nil, errTooBusy(r.id)
}

func (h *handler) delete(ctx context.Context, r *request) ([]byte, error) {
	if err := h.store.Delete(ctx, r.id, r.turn); err != nil {
		return nil, err
	}
	h.index.forget(r.id)
	return fmt.Appendf(nil, `{"id":%s,"object":"conversation.deleted","deleted":true}`, quote(string(r.id))), nil
}

// eventAt reads one event; nil if there is none at this seq.
func (h *handler) eventAt(ctx context.Context, id hansard.SessionID, seq hansard.Seq) (*hansard.Event, error) {
	for e, err := range h.store.Read(ctx, id, hansard.Range{After: seq - 1, Limit: 1}) {
		if err != nil {
			return nil, err
		}
		return &e, nil
	}
	return nil, nil
}
