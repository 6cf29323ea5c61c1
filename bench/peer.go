package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"hansard/internal/bench"
)

// peer is a way to store events, ours or another one.
type peer struct {
	bench.Candidate
	// shared says that several processes may have it open at once.
	shared bool
	// manyFiles says that it keeps a file open per session, which 100,000 sessions rule out.
	manyFiles bool
	// serve starts the server that the processes talk to, for one run. Nil: they need none.
	serve func(ctx context.Context, dir string) (*server, error)
	// read opens the events of session 0 for reading.
	read func(bench.Job) (reader, error)
	// run measures by other means than our processes. Nil: with those.
	run func(context.Context, bench.Job) ([]bench.Sample, error)
}

// reader reads the last events of a session, all of them if last is 0, decodes them
// and passes on their seqs.
type reader interface {
	events(ctx context.Context, last int, each func(seq uint64)) error
	Close() error
}

// server is a process that a peer's processes talk to.
type server struct {
	address string
	pid     int // its children are counted too
	stop    func() error
}

// peers are all of them, in the order in which they are shown.
func peers() []peer {
	all := []peer{
		{Candidate: bench.Hansard, shared: true, read: readHansard},
		{Candidate: bench.Plain, shared: true, manyFiles: true, read: readPlain},
		pebblePeer, bboltPeer,
	}
	all = append(all, sqlitePeers()...)
	return append(all, redisPeer, pgHansard, pgNaive, pgInsert, pgBench)
}

func candidates() (all []bench.Candidate) {
	for _, p := range peers() {
		all = append(all, p.Candidate)
	}
	return all
}

// document is an event as peers without columns keep it: the line of plain.
type document struct {
	Seq  uint64    `json:"seq,omitempty"`
	Time time.Time `json:"time"`
	Kind string    `json:"kind"`
	Role string    `json:"role"`
	Data string    `json:"data"`
}

const documentBytes = 1024

// text is the content of an event, after its tag.
var text = func() []byte {
	empty, err := json.Marshal(document{Time: time.Now().UTC(), Kind: "message", Role: "user"})
	if err != nil {
		panic(err) // it has no fields that could not be encoded
	}
	t := make([]byte, documentBytes-len(empty))
	for i := range t {
		t[i] = 'x'
	}
	return t
}()

// encode makes the document of an event, for peers that store bytes.
func encode(tag uint64) []byte {
	const stamp = "2006-01-02T15:04:05.000000Z"
	b := make([]byte, 0, documentBytes+64)
	b = append(b, `{"time":"`...)
	b = time.Now().UTC().AppendFormat(b, stamp)
	b = append(b, `","kind":"message","role":"user","data":"`...)
	at := len(b)
	b = append(b, text...)
	bench.PutTag(b[at:], tag)
	return append(b, `"}`...)
}

// tagOf is the tag in a document.
func tagOf(b []byte) (uint64, error) {
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		return 0, err
	}
	return bench.GetTag([]byte(d.Data))
}

// dataWithTag is the text of an event, for peers with columns.
func dataWithTag(tag uint64) string {
	b := append([]byte(nil), text...)
	bench.PutTag(b, tag)
	return string(b)
}

// checkSeqs compares the events of a session, which are given in order, with what was
// acknowledged: each at its seq, none missing, no others.
func checkSeqs(acks []bench.Ack, each func(yield func(seq, tag uint64) error) error) error {
	tags, err := bench.TagsBySeq(acks)
	if err != nil {
		return err
	}
	n := 0
	err = each(func(seq, tag uint64) error {
		if n++; seq != uint64(n) || n > len(tags) || tag != tags[n-1] {
			return fmt.Errorf("the event at seq %d is not the one that was acknowledged", seq)
		}
		return nil
	})
	if err == nil && n != len(tags) {
		err = fmt.Errorf("lost: %d events were acknowledged, %d are there", len(tags), n)
	}
	return err
}

// combiner lets one goroutine commit for all that wait, as one would do with a
// database that commits one transaction at a time.
type combiner struct {
	requests chan *request
	done     sync.WaitGroup
}

type request struct {
	session int
	tag     uint64
	seq     uint64
	err     error
	answer  chan struct{}
}

const largestGroup = 256

func newCombiner(commit func([]*request) error) *combiner {
	c := &combiner{requests: make(chan *request, largestGroup)}
	c.done.Go(func() {
		for first := range c.requests {
			group := []*request{first}
			for more := true; more && len(group) < largestGroup; {
				select {
				case r, ok := <-c.requests:
					if more = ok; ok {
						group = append(group, r)
					}
				default:
					more = false
				}
			}
			err := commit(group)
			for _, r := range group {
				r.err = err
				close(r.answer)
			}
		}
	})
	return c
}

func (c *combiner) append(session int, tag uint64) (uint64, error) {
	r := &request{session: session, tag: tag, answer: make(chan struct{})}
	c.requests <- r
	<-r.answer
	return r.seq, r.err
}

func (c *combiner) close() {
	close(c.requests)
	c.done.Wait()
}
