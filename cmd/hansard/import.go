package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/importer"
	"hansard/importer/openclaw"
	"hansard/importer/opencode"
	"hansard/transcript"
)

func newImport(a *app) *cobra.Command {
	var from string
	var yes, dry, watch bool
	cmd := &cobra.Command{
		Use:   "import [FILE|DIR…]",
		Short: "Import the sessions of other tools",
		Long: `Import the sessions of other tools: Claude Code, Codex, opencode, Gemini CLI,
Copilot CLI, pi, OpenClaw, cortex, trajectories, exports of cleveragents, arrays of
messages in the shapes of OpenAI and Anthropic, plain JSONL, and our own exports.

Without arguments it looks where these tools keep their sessions and lists what it
finds; with --yes it imports that. With FILE or DIR it imports these. --from names the
format if it can't be recognised from the file; chats and plain JSONL in directories are
imported only with it. Files made by export --format jsonl are checked, and give the
same sessions back.

Every record becomes one event, byte for byte, under the id that the tool gave it. So a
file may be imported again, by several processes at once, or after it grew: only what is
new is stored. The files themselves are never changed. Forks become forks of the
sessions they were forked from, sub-agents sessions of their own with a label that names
their parent.

What is damaged is reported with file and offset, and the rest imported. A last line
without its end is left for the next import. If a source can't be imported at all, the
others still are, and the exit code is 1. A session that was deleted in the store is
left out.

With --watch it runs until it is interrupted: files that grow, and new ones, are
imported within seconds; large ones less often. Our own exports, which do not grow, are
imported once, when it begins.`,
		Example: `  hansard import
  hansard import --yes
  hansard import ~/.claude/projects --dry-run
  hansard import chat.json --from openai
  hansard import --watch --yes`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			formats, err := importFormats(from)
			if err != nil {
				return err
			}
			if watch {
				return a.importWatch(cmd.Context(), formats, args, yes, dry)
			}
			return a.importAll(cmd.Context(), formats, args, yes, dry)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the `FORMAT` of the files: "+strings.Join(formatNames(), ", "))
	cmd.Flags().BoolVar(&yes, "yes", false, "without arguments: import what is found")
	cmd.Flags().BoolVar(&watch, "watch", false, "keep importing what these tools write, until interrupted")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "read everything, store nothing")
	return cmd
}

// allFormats are the formats that this program reads.
func allFormats() []importer.Format { return importer.Formats(opencode.Format{}, openclaw.New()) }

func formatNames() (names []string) {
	for _, f := range allFormats() {
		names = append(names, f.Name())
	}
	return names
}

// importFormats are the formats to look for.
func importFormats(from string) ([]importer.Format, error) {
	if from == "" {
		return allFormats(), nil
	}
	f, ok := importer.Find(allFormats(), from)
	if !ok {
		return nil, &usageError{fmt.Sprintf("there is no format %q", from), "the formats are " + strings.Join(formatNames(), ", ")}
	}
	return []importer.Format{f}, nil
}

func (a *app) importAll(ctx context.Context, formats []importer.Format, paths []string, yes, dry bool) error {
	if len(paths) == 0 {
		if !yes && !dry {
			sources, err := importer.Discover(formats, importer.ThisMachine())
			switch {
			case err != nil:
				return err
			case len(sources) == 0:
				return a.nothingFound(paths)
			}
			return a.listSources(sources)
		}
		return a.importFound(ctx, dry, nil, nil, func(m *importer.Memory) ([]*importer.Source, error) {
			return m.Discover(formats, importer.ThisMachine())
		})
	}
	var own []string
	var err error
	if len(formats) > 1 {
		if own, paths, err = ownExports(paths); err != nil {
			return err
		}
	}
	return a.importFound(ctx, dry, own, paths, func(m *importer.Memory) ([]*importer.Source, error) { return m.Named(formats, paths) })
}

// importFound imports what find finds, and our own exports. If earlier imports are known, the
// store is opened first: it says which files need not be read. Otherwise the store is not
// made until there is something to import.
func (a *app) importFound(ctx context.Context, dry bool, own, paths []string, find func(*importer.Memory) ([]*importer.Source, error)) error {
	path := a.memoryPath()
	var sources []*importer.Source
	look := func(m *importer.Memory) (found bool, err error) {
		sources, err = find(m)
		if err == nil && len(sources)+len(own) == 0 {
			err = a.nothingFound(paths)
		}
		return err == nil && len(sources)+len(own) > 0, err
	}
	_, err := os.Stat(path)
	known := err == nil && !dry
	if !known {
		if found, err := look(nil); !found || err != nil {
			return err
		}
	}
	return a.importInto(dry, func(s hansard.Store) error {
		var memory *importer.Memory
		if !dry {
			memory = importer.OpenMemory(s, path)
		}
		if known {
			if found, err := look(memory); !found || err != nil {
				return err
			}
		}
		failed, err := a.importOwn(ctx, s, own)
		if err == nil && len(sources) > 0 {
			err = a.importSources(ctx, s, memory, sources)
		}
		return orFirst(err, failed)
	})
}

// saveMemory saves what was imported for the next time. Without it the next import only takes
// longer.
func (a *app) saveMemory(m *importer.Memory) {
	if m != nil {
		_ = m.Save()
	}
}

// memoryPath is the file that remembers what was imported into the store, in the user's
// cache; empty if there is no cache directory.
func (a *app) memoryPath() string {
	spec, err := a.storeSpec()
	dir, err2 := os.UserCacheDir()
	if err != nil || err2 != nil {
		return ""
	}
	if !strings.Contains(spec, "://") {
		if spec, err = filepath.Abs(spec); err != nil {
			return ""
		}
	}
	sum := sha256.Sum256([]byte(spec)) // which may have a password in it
	return filepath.Join(dir, "hansard", "imports-"+hex.EncodeToString(sum[:12])+".jsonl")
}

// importInto opens the store, if anything is to be stored.
func (a *app) importInto(dry bool, do func(hansard.Store) error) error {
	if dry {
		return do(nil)
	}
	return a.withStore(creating, do)
}

func (a *app) nothingFound(paths []string) error {
	if a.json {
		return nil
	}
	what := "no sessions of other tools were found"
	if len(paths) > 0 {
		what += "; name their format with --from, or the files themselves"
	}
	_, err := fmt.Fprintln(a.out, what)
	return err
}

// listSources lists what was found, by tool.
func (a *app) listSources(sources []*importer.Source) error {
	if a.json {
		for _, s := range sources {
			err := a.out.jsonLine(map[string]any{"format": s.Format.Name(), "file": s.File(), "bytes": s.Size, "session": importer.SessionID(s.Format, s.Session)})
			if err != nil {
				return err
			}
		}
		return nil
	}
	t := &table{columns: []column{{name: "TOOL"}, {name: "FILES", right: true}, {name: "SIZE", right: true}, {name: "WHERE", shrink: 20}}}
	for _, group := range byTool(sources, func(s *importer.Source) *importer.Source { return s }) {
		var bytes int64
		for _, s := range group {
			bytes += s.Size
		}
		t.add("", group[0].Format.Tool(), strconv.Itoa(len(group)), humanBytes(bytes), escapeLine(group[0].Root))
	}
	if err := t.print(a.out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.out, "\nnothing was imported yet: %s\n", a.again("import", "--yes"))
	return err
}

// byTool groups a list by tool, in order of first appearance.
func byTool[T any](list []T, source func(T) *importer.Source) (groups [][]T) {
	place := map[string]int{}
	for _, item := range list {
		name := source(item).Format.Name()
		i, ok := place[name]
		if !ok {
			i, place[name] = len(groups), len(groups)
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], item)
	}
	return groups
}

// importSources imports, and reports the result.
func (a *app) importSources(ctx context.Context, s hansard.Store, memory *importer.Memory, sources []*importer.Source) error {
	run := &importRun{app: a, progress: newProgress(a.stderr), total: len(sources), stored: s != nil}
	var mu sync.Mutex // guards run, which several goroutines update
	records, added := 0, 0
	e := &importer.Engine{Store: s, Memory: memory, Progress: func(r, n int) {
		mu.Lock()
		defer mu.Unlock()
		records, added = records+r, added+n
		run.progress.show(func() string {
			return fmt.Sprintf("%d of %s, %s read, %d new", len(run.reports), plural(run.total, "file"), plural(records, "record"), added)
		})
	}}
	err := e.Run(ctx, sources, func(r importer.Report) {
		mu.Lock()
		defer mu.Unlock()
		run.take(r)
	})
	run.progress.done()
	a.saveMemory(memory)
	if err != nil {
		return orInterrupted(err, fmt.Sprintf("%s of %d were imported; run it again for the rest", plural(len(run.reports), "file"), run.total))
	}
	return errors.Join(run.err, run.finish())
}

// importRun prints what was imported.
type importRun struct {
	*app
	progress *progress
	total    int
	stored   bool // otherwise it was a dry run
	reports  []importer.Report
	failed   int
	deleted  int   // sessions that were deleted here
	err      error // of printing
}

// importedJSON is a source in the output of import.
type importedJSON struct {
	Format   string             `json:"format"`
	File     string             `json:"file"`
	Session  hansard.SessionID  `json:"session"`
	Records  int                `json:"records"`
	Added    int                `json:"added"`
	Copied   int                `json:"copied,omitempty"`
	Calls    int                `json:"calls,omitempty"`
	Results  int                `json:"results,omitempty"`
	Unpaired []string           `json:"unpaired,omitempty"`
	Orphans  int                `json:"orphans,omitempty"`
	Usage    *transcript.Tokens `json:"usage,omitempty"`
	Damage   []importer.Damage  `json:"damage,omitempty"`
	Remark   string             `json:"remark,omitempty"`
	Error    string             `json:"error,omitempty"`
}

func (r *importRun) take(rep importer.Report) {
	r.reports = append(r.reports, rep)
	gone := errors.Is(rep.Err, hansard.ErrDeleted)
	switch {
	case gone:
		r.deleted++
	case rep.Err != nil:
		r.failed++
	}
	if r.json {
		line := importedJSON{Format: rep.Source.Format.Name(), File: rep.Source.File(), Session: rep.Session, Records: rep.Records, Added: rep.Added, Copied: rep.Copied,
			Calls: rep.Calls, Results: rep.Results, Unpaired: rep.Open, Orphans: rep.Orphans, Damage: rep.Damage, Remark: rep.Remark}
		if rep.Usage != (transcript.Tokens{}) {
			line.Usage = &rep.Usage
		}
		if rep.Err != nil {
			line.Error = rep.Err.Error()
		}
		r.err = orFirst(r.err, r.out.jsonLine(line))
		return
	}
	r.progress.done()
	for _, d := range rep.Damage {
		if !d.Unfinished {
			fmt.Fprintf(r.stderr, "hansard: %s:%d: at byte %d: %s\n", escapeLine(d.File), d.Line, d.Offset, escapeLine(d.Message))
		}
	}
	if rep.Remark != "" {
		fmt.Fprintf(r.stderr, "hansard: %s: %s\n", escapeLine(rep.Source.File()), escapeLine(rep.Remark))
	}
	if rep.Err != nil && !gone {
		fmt.Fprintf(r.stderr, "hansard: %s: %s\n", escapeLine(rep.Source.File()), escapeText(r.message(rep.Err)))
	}
}

func (r *importRun) finish() error {
	if !r.json {
		if err := r.summary(); err != nil {
			return err
		}
	}
	if r.failed > 0 {
		return &hinted{fmt.Errorf("%s not imported to the end", plural(r.failed, "file")), "see above; what was read before is stored, and importing again continues from there"}
	}
	return nil
}

// summary is a table by tool.
func (r *importRun) summary() error {
	added := "NEW"
	t := &table{columns: []column{{name: "TOOL"}, {name: "FILES", right: true}, {name: "SESSIONS", right: true}, {name: "RECORDS", right: true}, {name: added, right: true},
		{name: "IN FORKS", right: true, drop: 4}, {name: "CALLS", right: true, drop: 5}, {name: "UNANSWERED", right: true, drop: 3}, {name: "TOKENS IN", right: true, drop: 1},
		{name: "OUT", right: true, drop: 1}, {name: "DAMAGE", right: true}}}
	for _, group := range byTool(r.reports, func(rep importer.Report) *importer.Source { return rep.Source }) {
		sessions := map[hansard.SessionID]bool{}
		var records, added, copied, calls, open, damage int
		var used transcript.Tokens
		for _, rep := range group {
			sessions[rep.Session] = true
			records, added, copied, calls, open = records+rep.Records, added+rep.Added, copied+rep.Copied, calls+rep.Calls, open+len(rep.Open)
			used.Input, used.Output = used.Input+rep.Usage.Input+rep.Usage.CacheRead+rep.Usage.CacheWrite, used.Output+rep.Usage.Output
			for _, d := range rep.Damage {
				if !d.Unfinished {
					damage++
				}
			}
		}
		t.add("", group[0].Source.Format.Tool(), strconv.Itoa(len(group)), strconv.Itoa(len(sessions)), strconv.Itoa(records), strconv.Itoa(added),
			some(copied), some(calls), some(open), some(used.Input), some(used.Output), some(damage))
	}
	if err := t.print(r.out); err != nil {
		return err
	}
	if r.deleted > 0 {
		if _, err := fmt.Fprintf(r.out, "\n%s deleted here, and left out\n", plural(r.deleted, "session")); err != nil {
			return err
		}
	}
	if !r.stored {
		_, err := fmt.Fprintln(r.out, "\nnothing was stored: this was a dry run")
		return err
	}
	return nil
}

// some is a number, empty for zero: a column of zeros is dropped.
func some[N int | int64](n N) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}
