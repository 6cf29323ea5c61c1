package hansard

import (
	"context"
	"iter"
	"time"
)

// Searcher is implemented by stores whose events can be searched for words.
//
// What is searched is what people read in an event, as package transcript has it:
// messages, thinking, the names of tools, their arguments and results, summaries and the
// names of files, not the syntax and the member names of JSON, and neither binary data
// nor the store's own records of turns. If that is more than [MaxSearchedText] bytes the
// middle is left out.
//
// A text is a sequence of words: runs of letters and digits, ignoring case and diacritics
// ("Zürich" is "zurich"). Any other character separates them. Where a language is written
// without spaces, such as Chinese, Japanese, Korean or Thai, each character is found
// wherever it stands. Runs of more than [MaxSearchedWord] characters are not words.
type Searcher interface {
	// Search yields the events that meet all conditions of the query, the best first,
	// and equally good ones newest first. How events are ranked is up to the engine:
	// higher where the words are more of the text, and occur more often. If very many
	// events match, an engine may rank only the newest of them, and yield the others
	// after those by time alone.
	//
	// The answer is complete: every event that was acknowledged before the iteration
	// began is found, and nothing that was deleted by then is. Sessions that can't be
	// read are left out; List tells which those are. A damaged session is searched up
	// to the damage.
	Search(ctx context.Context, q SearchQuery) iter.Seq2[Hit, error]
}

// SearchQuery says which events Search yields: those that meet every condition that is set.
type SearchQuery struct {
	// Text is what the events say: words, separated by space, all of which must be
	// there in any order. "Words in quotes" must stand together in this order, and
	// so must the parts of what is written together, such as read_file or
	// v1.2. An asterisk after a word stands for any ending: deplo*. In scripts
	// without spaces a word is any run of characters: it is found inside others.
	// A text without a word, or with a quote that is not closed, is [ErrInvalid];
	// more than [MaxSearchText] bytes are [ErrTooLarge].
	Text string
	// Role and Kind are those of the event; empty: any. The role may be one that only
	// the event's data names.
	Role, Kind string
	// Since and Before bound the event's time: at or after Since, before Before.
	Since, Before time.Time
	// In searches this session only.
	In SessionID
	// Prefix searches sessions whose id begins with it.
	Prefix string
	// Labels searches sessions that have all of these labels now.
	Labels map[string]string
	// Limit is the maximum number of hits; 0 means no limit.
	Limit int
	// Offset skips the first hits: the pages of an answer. What is stored between two
	// pages may move hits from one to the other.
	Offset int
}

// The limits of a search.
const (
	MaxSearchText   = 1 << 10   // bytes of SearchQuery.Text
	MaxSearchWords  = 32        // words and phrases in it
	MaxSearchedText = 256 << 10 // bytes of an event's text that are searched
	MaxSearchedWord = 128       // characters
)

// Hit is an event that a search found.
type Hit struct {
	Session SessionID `json:"session"`
	Seq     Seq       `json:"seq"`
	ID      string    `json:"id,omitempty"` // the event's own
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`
	// Role and Author are the event's, or those that its data names.
	Role   string `json:"role"`
	Author string `json:"author"`
	// Title is the session's.
	Title string `json:"title"`
	// Snippet is a line of the event's text around what was found, and Marks are
	// where in it that is.
	Snippet string `json:"snippet"`
	Marks   []Mark `json:"marks"`
	// Score is higher for better hits. It can be compared within one answer only.
	Score float64 `json:"score"`
}

// Mark is a part of a text, in bytes: from Start up to and without End.
type Mark struct {
	Start int `json:"start"`
	End   int `json:"end"`
}
