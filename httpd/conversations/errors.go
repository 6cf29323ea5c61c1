package conversations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"hansard"
	"hansard/internal/wire"
)

// apiError is an error in the shape of the OpenAI API. The SDKs choose their
// error class by the status alone: 400 BadRequestError, 404 NotFoundError, 409
// ConflictError, 422 UnprocessableEntityError, 5xx InternalServerError.
type apiError struct {
	status  int
	message string
	kind    string // "type" in the answer
	param   string // which part of the request; empty is null
	code    string // for programs; empty is null
	// again says whether an SDK should retry on its own. By default they all do so
	// on 409 and 5xx, which is useless for most errors of this handler.
	again bool
	// after is Retry-After, in seconds; 0 means none.
	after int
}

func (e *apiError) Error() string { return e.message }

const (
	kindRequest = "invalid_request_error"
	kindServer  = "server_error"
)

func badRequest(param, code, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: kindRequest, param: param, code: code, message: fmt.Sprintf(format, args...)}
}

func noConversation(id hansard.SessionID) *apiError {
	return &apiError{status: http.StatusNotFound, kind: kindRequest, param: "conversation_id", code: "conversation_not_found",
		message: fmt.Sprintf("Conversation with id '%s' not found.", id)}
}

func noItem(id hansard.SessionID, item string) *apiError {
	return &apiError{status: http.StatusNotFound, kind: kindRequest, param: "item_id", code: "item_not_found",
		message: fmt.Sprintf("Item with id '%s' not found in conversation '%s'.", item, id)}
}

// errTooBusy is returned to a writer whose condition kept failing because of other
// writers. Nothing was stored, and another try is harmless.
func errTooBusy(id hansard.SessionID) *apiError {
	return &apiError{status: http.StatusConflict, kind: kindRequest, code: "conversation_busy", again: true,
		message: fmt.Sprintf("Conversation '%s' was written to by others on every try. Nothing was stored; try again.", id)}
}

// errorFor translates an error of the store for the API. It reveals no path of the
// machine and no content. What it does not explain goes to the log.
func errorFor(err error, id hansard.SessionID) (answer *apiError, explained bool) {
	var own *apiError
	if errors.As(err, &own) {
		return own, true
	}
	answer = &apiError{kind: kindServer}
	say := func(status int, code, format string, args ...any) {
		answer.status, answer.code, answer.message = status, code, fmt.Sprintf(format, args...)
		if hint := hansard.Hint(err); hint != "" {
			answer.message += " (" + hint + ")"
		}
		if status < 500 {
			answer.kind = kindRequest
		}
	}
	var tooLong *http.MaxBytesError
	var invalid *hansard.InvalidError
	var held *hansard.HeldError
	var damaged *hansard.DamagedError
	var problem *wire.Problem
	switch kind := hansard.Kind(err); {
	case kind == hansard.ErrUnknown:
		say(http.StatusInternalServerError, "outcome_unknown", "It is not known whether this was stored.")
	case kind == hansard.ErrNotFound, kind == hansard.ErrDeleted:
		// The SDKs know only 404; the code says that it was deleted.
		answer = noConversation(id)
		if kind == hansard.ErrDeleted {
			answer.code = "conversation_deleted"
		}
	case errors.As(err, &tooLong):
		say(http.StatusRequestEntityTooLarge, "request_too_large", "The request is larger than %d bytes.", tooLong.Limit)
	case kind == hansard.ErrTooLarge && errors.As(err, &invalid):
		say(http.StatusRequestEntityTooLarge, "request_too_large", "Invalid '%s': %s.", param(invalid.Field), invalid.Reason)
		answer.param = param(invalid.Field)
	case kind == hansard.ErrTooLarge:
		say(http.StatusRequestEntityTooLarge, "request_too_large", "A limit was exceeded.")
	case errors.As(err, &invalid):
		say(http.StatusBadRequest, "invalid_value", "Invalid '%s': %s.", param(invalid.Field), invalid.Reason)
		answer.param = param(invalid.Field)
	case kind == hansard.ErrInvalid:
		say(http.StatusBadRequest, "invalid_value", "The request is not valid.")
	case errors.As(err, &held):
		say(http.StatusConflict, "turn_held", "The turn of conversation '%s' is held exclusively by %s.", id, held.Turn.Holder)
		answer.again, answer.after = true, 1
	case kind == hansard.ErrHeld:
		say(http.StatusConflict, "turn_held", "The turn of conversation '%s' is held exclusively.", id)
		answer.again, answer.after = true, 1
	case kind == hansard.ErrFenced:
		say(http.StatusConflict, "turn_lost", "The turn this was to be written under is no longer held in conversation '%s'.", id)
	case kind == hansard.ErrConflict:
		answer = errTooBusy(id)
	case kind == hansard.ErrExists:
		say(http.StatusConflict, "conversation_exists", "Conversation '%s' exists already.", id)
	case kind == hansard.ErrKeyReused:
		say(http.StatusUnprocessableEntity, "idempotency_key_reused", "The Idempotency-Key was used in conversation '%s' for another request.", id)
		answer.param = keyHeader
	case kind == hansard.ErrIDReused:
		say(http.StatusBadRequest, "duplicate_item_id", "Conversation '%s' has another item with this id.", id)
		answer.param = "items"
	case kind == hansard.ErrNoEvent:
		say(http.StatusNotFound, "item_not_found", "Conversation '%s' has no such item.", id)
		answer.param = "item_id"
	case kind == hansard.ErrNoAttachment:
		say(http.StatusUnprocessableEntity, "attachment_not_found", "Conversation '%s' has no such attachment.", id)
		answer.param = "items"
	case errors.As(err, &damaged):
		say(http.StatusServiceUnavailable, "conversation_damaged", "Conversation '%s' is damaged; what was stored up to seq %d is safe.", id, damaged.SafeSeq)
	case kind == hansard.ErrDamaged:
		say(http.StatusServiceUnavailable, "conversation_damaged", "Conversation '%s' is damaged.", id)
	case kind == hansard.ErrUnreadable:
		say(http.StatusServiceUnavailable, "conversation_unreadable", "Conversation '%s' can't be read.", id)
	case kind == hansard.ErrBusy:
		say(http.StatusServiceUnavailable, "store_busy", "The store is busy.")
		answer.again, answer.after = true, 1
	case kind == hansard.ErrNoSpace:
		say(http.StatusInsufficientStorage, "no_space", "There is no space left to store this.")
	case kind == hansard.ErrReadOnly:
		say(http.StatusForbidden, "read_only", "The store can only be read.")
	case kind == hansard.ErrFailed:
		// Which file and which error of the disk are only in the log.
		say(http.StatusInternalServerError, "store_failed", "The store's disk failed.")
		return answer, false
	case kind == hansard.ErrVersion:
		say(http.StatusInternalServerError, "newer_version", "Conversation '%s' was written by another version of the server.", id)
		return answer, false
	case kind == hansard.ErrUnsupported:
		say(http.StatusNotImplemented, "unsupported", "The store can't do this.")
	case kind == hansard.ErrClosed:
		say(http.StatusServiceUnavailable, "shutting_down", "The server is shutting down.")
		answer.again = true
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		say(http.StatusServiceUnavailable, "timeout", "The request ended before it was answered.")
	case errors.As(err, &problem) && problem.Status < 500:
		// The server refuses for reasons of its own, such as the scope of a token.
		say(problem.Status, strings.ReplaceAll(strings.TrimPrefix(problem.Type, wire.ProblemType("")), "-", "_"), "%s.", sentence(problem.Error()))
	default:
		say(http.StatusInternalServerError, "internal_error", "The server could not process the request.")
		return answer, false
	}
	return answer, true
}

// sentence begins a text with a capital letter, as the API's messages do.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// param translates the name of a field for the API.
func param(field string) string {
	switch field {
	case "id":
		return "conversation_id"
	case "key":
		return keyHeader
	case "turn":
		return turnHeader
	case "batch":
		return "items"
	}
	// The events of a batch are the items of the request, in order.
	if rest, ok := strings.CutPrefix(field, "events["); ok {
		return "items[" + strings.TrimSuffix(rest, ".data")
	}
	return field
}

// Refuse answers in the API's shape, for the server around the handler: a refusal for a
// missing token (401) or right (403) should look to an SDK like any other error. The code
// is for programs, the message for people; after is the number of seconds after which a
// retry may help, 0 if it can't.
func Refuse(w http.ResponseWriter, status int, code, message string, after int) {
	e := &apiError{status: status, kind: kindRequest, code: code, message: message, again: after > 0, after: after}
	if status >= 500 {
		e.kind = kindServer
	}
	writeError(w, e)
}

func writeError(w http.ResponseWriter, e *apiError) {
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	body, _ := json.Marshal(map[string]any{"error": map[string]any{ // strings: can't fail
		"message": e.message, "type": e.kind, "param": orNull(e.param), "code": orNull(e.code),
	}})
	h := w.Header()
	if e.status == http.StatusConflict || e.status >= 500 {
		h.Set("X-Should-Retry", strconv.FormatBool(e.again))
	}
	if e.after > 0 {
		h.Set("Retry-After", strconv.Itoa(e.after))
	}
	writeJSON(w, e.status, body)
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone finds the outcome in the log
}
