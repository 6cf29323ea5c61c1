package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"sync"

	"hansard"
)

func attachmentMutants() []mutant {
	type ctx = context.Context
	appends := func(name string, act func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error), caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				batch.Events = slices.Clone(batch.Events)
				return act(c, s, id, batch)
			}
		})}
	}
	attaches := func(name string, act func(c ctx, s hansard.Store, id hansard.SessionID, r io.Reader) (hansard.Attachment, error), caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.attach = func(c ctx, id hansard.SessionID, r io.Reader) (hansard.Attachment, error) { return act(c, s, id, r) }
		})}
	}
	drop := func(b *hansard.Batch) {
		for i := range b.Events {
			b.Events[i].Attachments = nil
		}
	}
	return []mutant{
		appends("attachments of events are lost", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			drop(&b)
			return s.Append(c, id, b)
		}, "attachment/named", "attachment/content", "append/every field"),
		appends("events name what is not there", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			r, err := s.Append(c, id, b)
			if errors.Is(err, hansard.ErrNoAttachment) {
				drop(&b)
				return s.Append(c, id, b)
			}
			return r, err
		}, "attachment/named"),
		attaches("attachments are cut", func(c ctx, s hansard.Store, id hansard.SessionID, r io.Reader) (hansard.Attachment, error) {
			return s.Attach(c, id, io.LimitReader(r, 1<<20))
		}, "attachment/read back", "attachment/parts"),
		attaches("what a broken reader gave is attached", func(c ctx, s hansard.Store, id hansard.SessionID, r io.Reader) (hansard.Attachment, error) {
			content, _ := io.ReadAll(r)
			return s.Attach(c, id, bytes.NewReader(content))
		}, "attachment/refused"),
		attaches("attaching creates the session", func(c ctx, s hansard.Store, id hansard.SessionID, r io.Reader) (hansard.Attachment, error) {
			s.Create(c, id, hansard.Meta{})
			return s.Attach(c, id, r)
		}, "attachment/refused"),
		attaches("sessions share their attachments", func(c ctx, s hansard.Store, id hansard.SessionID, r io.Reader) (hansard.Attachment, error) {
			content, err := io.ReadAll(r)
			if err != nil {
				return hansard.Attachment{}, err
			}
			s.Attach(c, "s", bytes.NewReader(content))
			return s.Attach(c, id, bytes.NewReader(content))
		}, "attachment/named", "attachment/list"),
		{name: "attachments are listed twice", caught: []string{"attachment/once", "attachment/list"}, plant: inner(func(b *broken, s hansard.Store) {
			b.attachments = func(c ctx, id hansard.SessionID) iter.Seq2[hansard.Attachment, error] {
				return func(yield func(hansard.Attachment, error) bool) {
					for a, err := range s.Attachments(c, id) {
						for range 2 {
							if !yield(a, err) {
								return
							}
						}
					}
				}
			}
		})},
		{name: "attachments outlive their session", caught: []string{"attachment/deleted"}, plant: inner(func(b *broken, s hansard.Store) {
			var kept sync.Map
			b.open = func(c ctx, id hansard.SessionID, digest string) (hansard.AttachmentReader, error) {
				r, err := s.OpenAttachment(c, id, digest)
				if old, ok := kept.Load(digest); errors.Is(err, hansard.ErrDeleted) && ok {
					return old.(hansard.AttachmentReader), nil
				}
				return r, err
			}
			b.attach = func(c ctx, id hansard.SessionID, r io.Reader) (hansard.Attachment, error) {
				a, err := s.Attach(c, id, r)
				if opened, err := s.OpenAttachment(c, id, a.Digest); err == nil {
					kept.Store(a.Digest, opened)
				}
				return a, err
			}
		})},
	}
}
