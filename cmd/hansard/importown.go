package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"hansard"
	"hansard/archive"
)

// ownExports separates our own exports from the rest of the paths. Directories are
// searched for them by extension; the directory stays in the rest.
func ownExports(paths []string) (own, rest []string, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, nil, err
		}
		if !info.IsDir() {
			if info.Mode().IsRegular() && isExport(path) {
				own = append(own, path)
			} else {
				rest = append(rest, path)
			}
			continue
		}
		rest = append(rest, path)
		err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && filepath.Ext(name) == ".jsonl" && isExport(name) {
				own = append(own, name)
			}
			if name != path {
				return nil // importer.Named also walks here, reports it and continues
			}
			return err
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return own, rest, nil
}

// isExport checks the first line, which may have a large state in it.
func isExport(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	start := make([]byte, 64)
	n, _ := io.ReadFull(f, start)
	if !strings.HasPrefix(string(start[:n]), `{"hansard":"session"`) {
		return false
	}
	head, err := io.ReadAll(io.LimitReader(io.MultiReader(&sliceReader{start[:n]}, f), 4<<20))
	return err == nil && archive.Is(head)
}

// importOwn imports sessions exactly as they were exported. What can't be imported is reported
// and does not keep the rest out: failed is then the error of the command.
func (a *app) importOwn(ctx context.Context, s hansard.Store, files []string) (failed, err error) {
	run := &copyRun{app: a, progress: newProgress(a.stderr)}
	defer run.progress.done()
	report := func(err error) error {
		run.progress.done()
		failed = &quietError{errors.New("not every export was imported")}
		if err := a.out.Flush(); err != nil {
			return err // earlier output comes before the message
		}
		a.report(ctx, err)
		return nil
	}
	for _, file := range files {
		err := a.importExport(ctx, s, file, run)
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s: %w", escapeLine(file), err)
		if !aboutExport(err) {
			return nil, err
		}
		if err := report(err); err != nil {
			return nil, err
		}
	}
	if run.sessions == 0 {
		return failed, nil
	}
	if err := run.finish(); err != nil {
		return failed, report(err)
	}
	return failed, nil
}

// aboutExport reports whether an error is about the file, not about the store.
func aboutExport(err error) bool {
	var path *fs.PathError
	return errors.Is(err, archive.ErrBroken) || errors.As(err, &path) && hansard.Kind(err) == nil
}

func (a *app) importExport(ctx context.Context, s hansard.Store, file string, run *copyRun) (err error) {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	src, err := archive.Open(ctx, f, info.Size())
	if err != nil {
		return err
	}
	if s == nil { // a dry run: it was checked
		for _, id := range src.Sessions() {
			if err := run.take(hansard.Copied{Session: id}); err != nil {
				return err
			}
		}
		return nil
	}
	dst, ok := s.(hansard.Importer)
	if !ok {
		return notCopied(a.store, "to")
	}
	for c, err := range hansard.Copy(ctx, src, dst) {
		if err != nil {
			return err
		}
		if err := run.take(c); err != nil {
			return err
		}
	}
	return nil
}
