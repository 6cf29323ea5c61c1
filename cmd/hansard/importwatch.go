package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"hansard"
	"hansard/importer"
)

// watchPause is how long --watch waits before it looks again.
const watchPause = time.Second

// importWatch imports, and then keeps importing what changes.
func (a *app) importWatch(ctx context.Context, formats []importer.Format, paths []string, yes, dry bool) error {
	switch {
	case dry:
		return &usageError{"--watch stores what it finds: it can't be a dry run", "leave one of the two out"}
	case len(paths) == 0 && !yes:
		return &usageError{"--watch without FILE or DIR imports everything it finds", "add --yes; hansard import lists what it finds"}
	}
	var own []string
	if len(paths) > 0 && len(formats) > 1 {
		var err error
		if own, paths, err = ownExports(paths); err != nil {
			return err
		}
		if len(paths) == 0 {
			return &usageError{"--watch has nothing to watch: exports of Hansard do not grow", "import them without --watch"}
		}
	}
	find := func(m *importer.Memory) ([]*importer.Source, error) {
		if len(paths) == 0 {
			return m.Discover(formats, importer.ThisMachine())
		}
		return m.Named(formats, paths)
	}
	if _, err := os.Stat(a.memoryPath()); err != nil { // nothing imported yet: if nothing can be found, the store is not made either
		if _, err := find(nil); err != nil {
			return err
		}
	}
	return a.withStore(creating, func(s hansard.Store) error {
		memory := importer.OpenMemory(s, a.memoryPath())
		defer a.saveMemory(memory)
		failed, err := a.importOwn(ctx, s, own)
		if err != nil {
			return err
		}
		look := func() ([]*importer.Source, error) { return find(memory) }
		w := &importer.Watcher{Engine: &importer.Engine{Store: s, Memory: memory}, Find: look, Report: a.watched, Pause: func(ctx context.Context) error {
			if err := a.out.Flush(); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-time.After(watchPause):
			}
			return nil
		}}
		return orFirst(w.Run(ctx), failed)
	})
}

// watched reports what was imported from one source.
func (a *app) watched(r importer.Report) {
	run := &importRun{app: a, progress: &progress{}}
	if a.json || r.Err != nil && !errors.Is(r.Err, hansard.ErrDeleted) {
		run.take(r)
	}
	if !a.json && r.Added > 0 {
		fmt.Fprintf(a.out, "%s  %s\n", escapeLine(string(r.Session)), plural(r.Added, "new event"))
	}
}
