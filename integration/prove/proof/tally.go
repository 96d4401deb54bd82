package proof

import (
	"fmt"
	"maps"
)

// Tally is what was seen at some points.
type Tally struct {
	Tries int `json:"tries"`
	// Faults counts what was done, by kind.
	Faults map[string]int `json:"faults,omitempty"`
	// Offsets counts cuts by the tenth of the file that they were in; Outside
	// counts those before and behind it.
	Offsets [10]int `json:"offsets"`
	Outside int     `json:"outside"`
	// States counts what came of it.
	States map[string]int `json:"states,omitempty"`
	// Control counts what has to fail where nothing guards it.
	Control map[string]int `json:"control,omitempty"`
	// Figures are quantities that were measured; their names say the unit.
	Figures map[string]*Figure `json:"figures,omitempty"`
	// Broken counts violations, Violations are the first of them.
	Broken     int         `json:"broken"`
	Violations []Violation `json:"violations,omitempty"`
}

// Violation is a broken promise and the point that shows it.
type Violation struct {
	Point int    `json:"point"`
	What  string `json:"what"`
}

// kept is how many violations are told in words, and wordy how many bytes of
// them each.
const (
	kept  = 20
	wordy = 2000
)

func (t *Tally) violate(point int, format string, args ...any) {
	t.Broken++
	if len(t.Violations) < kept {
		what := fmt.Sprintf(format, args...)
		t.Violations = append(t.Violations, Violation{point, what[:min(len(what), wordy)]})
	}
}

// ViolateAt records that the promise was broken at a point that has ended.
func (t *Tally) ViolateAt(point int, format string, args ...any) { t.violate(point, format, args...) }

// Fault counts a fault that was done.
func (t *Tally) Fault(kind string) { count(&t.Faults, kind, 1) }

// State counts something that was seen.
func (t *Tally) State(name string) { count(&t.States, name, 1) }

// Add counts something that was seen n times.
func (t *Tally) Add(name string, n int) { count(&t.States, name, n) }

// Fails counts a control that failed n times, as it must.
func (t *Tally) Fails(name string, n int) { count(&t.Control, name, n) }

// Measure counts a value of a figure.
func (t *Tally) Measure(name string, v float64) {
	if t.Figures == nil {
		t.Figures = make(map[string]*Figure)
	}
	if t.Figures[name] == nil {
		t.Figures[name] = &Figure{}
	}
	t.Figures[name].add(v)
}

// Cut counts a cut at an offset of a file of size bytes.
func (t *Tally) Cut(offset, size int64) {
	if offset < 0 || offset >= size {
		t.Outside++
		return
	}
	t.Offsets[offset*10/size]++
}

// Inside is the share of cuts that were in their files.
func (t *Tally) Inside() float64 {
	inside := 0
	for _, n := range t.Offsets {
		inside += n
	}
	return share(inside, inside+t.Outside)
}

// Seen is the share of tries in which a state was seen.
func (t *Tally) Seen(state string) float64 { return share(t.States[state], t.Tries) }

func share(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// Merge adds what another tally has counted.
func (t *Tally) Merge(o *Tally) {
	t.Tries += o.Tries
	for _, m := range []struct {
		to   *map[string]int
		from map[string]int
	}{{&t.Faults, o.Faults}, {&t.States, o.States}, {&t.Control, o.Control}} {
		for name, n := range m.from {
			count(m.to, name, n)
		}
	}
	for name, f := range o.Figures {
		if t.Figures == nil {
			t.Figures = make(map[string]*Figure)
		}
		t.Figures[name] = t.Figures[name].merge(f)
	}
	for i, n := range o.Offsets {
		t.Offsets[i] += n
	}
	t.Outside += o.Outside
	t.Broken += o.Broken
	room := max(0, kept-len(t.Violations))
	t.Violations = append(t.Violations, o.Violations[:min(room, len(o.Violations))]...)
}

// clone returns a copy that shares nothing.
func (t *Tally) clone() Tally {
	c := *t
	c.Faults, c.States, c.Control = maps.Clone(t.Faults), maps.Clone(t.States), maps.Clone(t.Control)
	c.Figures = maps.Clone(t.Figures) // a merge makes new ones
	c.Violations = append([]Violation(nil), t.Violations...)
	return c
}

func count(m *map[string]int, name string, n int) {
	if *m == nil {
		*m = make(map[string]int)
	}
	(*m)[name] += n
}
