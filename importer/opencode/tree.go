package opencode

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hansard/importer"
)

// fileBytes is how large a file of the tree may be.
const fileBytes = 64 << 20

// readTree reads a session of the older versions: storage/session/<project>/<id>.json,
// storage/message/<session>/<id>.json, storage/part/<message>/<id>.json.
func readTree(ctx context.Context, in *importer.Input, emit func(importer.Record) error) (err error) {
	root, err := os.OpenRoot(in.Root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	t := &tree{root: root, in: in}
	data, ok, err := t.file(in.Path)
	if err != nil || !ok {
		return err
	}
	var info struct {
		ID        string `json:"id"`
		ParentID  string `json:"parentID"`
		Title     string `json:"title"`
		Directory string `json:"directory"`
		Version   string `json:"version"`
		Time      struct {
			Created float64 `json:"created"`
		} `json:"time"`
	}
	_ = json.Unmarshal(data, &info) // it is JSON
	if info.ID == "" {
		info.ID = in.Session
	}
	r := &reader{emit: emit, session: session{id: info.ID, parent: info.ParentID, title: info.Title, directory: info.Directory, version: info.Version}}
	if err := r.about(milliseconds(info.Time.Created), data); err != nil {
		return err
	}
	return t.each(ctx, filepath.Join("message", info.ID), func(id string, data []byte) error {
		role, err := r.message(id, milliseconds(0), data)
		if err != nil {
			return err
		}
		return t.each(ctx, filepath.Join("part", id), func(id string, data []byte) error { return r.part(id, role, milliseconds(0), data) })
	})
}

type tree struct {
	root *os.Root
	in   *importer.Input
}

// each passes on the files of a directory, by name: ids are in ascending order.
func (t *tree) each(ctx context.Context, dir string, take func(id string, data []byte) error) error {
	entries, err := fs.ReadDir(t.root.FS(), filepath.ToSlash(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !e.Type().IsRegular() || filepath.Ext(e.Name()) != ".json" {
			continue
		}
		data, ok, err := t.file(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := take(strings.TrimSuffix(e.Name(), ".json"), data); err != nil {
			return err
		}
	}
	return nil
}

// file reads a file. One that is not JSON is reported.
func (t *tree) file(name string) (data []byte, ok bool, err error) {
	f, err := t.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil // removed since
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, fileBytes+1))
	if err != nil {
		return nil, false, err
	}
	if len(data) > fileBytes || !json.Valid(data) {
		t.in.Report(importer.Damage{File: filepath.Join(t.in.Root, name), Message: "it is not JSON, or too large"})
		return nil, false, nil
	}
	return data, true, nil
}
