package importer

import (
	"context"
	"os"
	"time"
)

// Watcher follows sources that are being written to: a source that has changed since it
// was imported is imported again, which stores only what is new.
type Watcher struct {
	Engine *Engine
	// Find returns the sources that exist now.
	Find func() ([]*Source, error)
	// Pause waits until it is time to look again.
	Pause func(ctx context.Context) error
	// Report receives what was imported, and new errors.
	Report func(Report)
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	seen map[string]*watched
}

// watched is what is known about a source.
type watched struct {
	stamp stamp
	// rest is until when it is left alone: a file is read from its beginning, and a large
	// one that keeps growing must not be read all the time.
	rest time.Time
	err  string // the last one
}

// restTimes is how many times the duration of its import a source is left alone.
const restTimes = 10

// Run imports what exists and then what changes, until the context ends. Then it returns
// nil; an error means that it can't continue.
func (w *Watcher) Run(ctx context.Context) error {
	if w.Now == nil {
		w.Now = time.Now
	}
	w.seen = map[string]*watched{}
	for {
		err := w.look(ctx)
		if err == nil {
			err = w.Pause(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// look imports what has changed.
func (w *Watcher) look(ctx context.Context) error {
	sources, err := w.Find()
	if err != nil {
		return err
	}
	var changed []*Source
	stamps := map[string]stamp{}
	for _, s := range sources {
		// Before it is read: what is written during the read counts as another change.
		now := stampOf(s)
		known := w.seen[s.File()]
		if known != nil && (known.stamp == now || w.Now().Before(known.rest)) {
			continue
		}
		changed = append(changed, s)
		stamps[s.File()] = now
	}
	if len(changed) == 0 {
		return nil
	}
	began := w.Now()
	return w.Engine.Run(ctx, changed, func(r Report) {
		file := r.Source.File()
		known := w.seen[file]
		if known == nil {
			known = &watched{}
			w.seen[file] = known
		}
		known.rest = w.Now().Add(restTimes * w.Now().Sub(began))
		message := ""
		if r.Err != nil {
			message = r.Err.Error()
		} else {
			known.stamp = stamps[file]
		}
		if r.Added > 0 || message != known.err {
			w.Report(r)
		}
		known.err = message
	})
}

// stamp tells whether a source has changed. A database has its newest changes in a log
// beside it.
type stamp struct {
	mark          string // the file system's, if it has one
	size, logSize int64
	at, logAt     int64
}

func stampOf(s *Source) (out stamp) {
	out.mark = s.mark
	out.size, out.at = s.Size, s.Modified.UnixNano()
	if info, err := os.Lstat(s.File() + "-wal"); err == nil {
		out.logSize, out.logAt = info.Size(), info.ModTime().UnixNano()
	}
	return out
}
