package proof

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// The verdicts of a record.
const (
	// Running: the run was not over when this was written.
	Running = "running"
	// Held: no violation, and the tally proves it.
	Held = "held"
	// Broken: there is a violation.
	Broken = "broken"
	// Short: no violation, but the tally does not prove much.
	Short = "short"
	// LeftOut: the machine lacks what is needed, which Missing names.
	LeftOut = "left_out"
)

// Record is the line of a goal.
type Record struct {
	Goal    string `json:"goal"`
	Promise string `json:"promise"`
	Verdict string `json:"verdict"`
	// Commit is the one that was tried, Dirty that the tree differed from it,
	// Mutant what it was broken by on purpose.
	Commit string `json:"commit"`
	Dirty  bool   `json:"dirty,omitempty"`
	Mutant string `json:"mutant,omitempty"`
	Seed   uint64 `json:"seed"`
	// Points were asked for, Done of them are counted.
	Points int `json:"points"`
	Done   int `json:"done"`
	Tally
	// Missing says what the tally does not prove.
	Missing []string `json:"missing,omitempty"`
	Seconds float64  `json:"seconds"`
	// Race tells that the prover ran with the race detector, Machine where.
	Race    bool    `json:"race"`
	Machine Machine `json:"machine"`
}

// Machine is where a record was made.
type Machine struct {
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	User   int    `json:"user"`
}

// Lacking is the error of a goal that cannot be tried here: what is needed and
// how to get it.
type Lacking string

// Error returns what is needed.
func (l Lacking) Error() string { return "left out: " + string(l) }

// Conclude sets the verdict by the goal's own judge.
func (r *Record) Conclude(g Goal) {
	r.Verdict, r.Missing = Held, nil
	if g.Judge != nil {
		r.Missing = g.Judge(&r.Tally)
	}
	switch {
	case r.Broken > 0:
		r.Verdict = Broken
	case len(r.Missing) > 0:
		r.Verdict = Short
	}
}

// same tells whether two records are of the same run.
func (r *Record) same(o *Record) bool {
	return r.Goal == o.Goal && r.Seed == o.Seed && r.Points == o.Points && r.Commit == o.Commit &&
		r.Dirty == o.Dirty && r.Mutant == o.Mutant
}

// File is a file of records, one line each. One without a path is kept in
// memory.
type File struct {
	path    string
	records []Record
}

// NewFile returns a file that replaces what is at path with its first record.
func NewFile(path string) *File { return &File{path: path} }

// OpenFile reads a file of records.
func OpenFile(path string) (*File, error) {
	f := &File{path: path}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Buffer(nil, 1<<24); lines.Scan(); {
		var r Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, len(f.records)+1, err)
		}
		f.records = append(f.records, r)
	}
	return f, lines.Err()
}

// Line returns the record of a line, from 1.
func (f *File) Line(n int) (Record, error) {
	if n < 1 || n > len(f.records) {
		return Record{}, fmt.Errorf("%s has no line %d", f.path, n)
	}
	return f.records[n-1], nil
}

// Earlier returns the record of the same run, if there is one.
func (f *File) Earlier(r Record) (Record, bool) {
	i := slices.IndexFunc(f.records, func(o Record) bool { return o.same(&r) })
	if i < 0 {
		return Record{}, false
	}
	return f.records[i], true
}

// Put writes a record in the place of the one of the same run. The file is
// replaced whole.
func (f *File) Put(r Record) error {
	i := slices.IndexFunc(f.records, func(o Record) bool { return o.same(&r) })
	if i < 0 {
		f.records = append(f.records, r)
	} else {
		f.records[i] = r
	}
	if f.path == "" {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, r := range f.records {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	temp := filepath.Join(filepath.Dir(f.path), "."+filepath.Base(f.path)+".new")
	if err := os.WriteFile(temp, b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(temp, f.path)
}
