package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// median of a few numbers; they stay as they are.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// met tells whether the median is what it must be.
func (r result) met() bool { return r.err == nil && len(r.values) > 0 && r.row.met(median(r.values)) }

// table returns the rows in Markdown.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("| row | size | rounds | min | median | max | must | met |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		must := "≥ "
		if r.atMost {
			must = "≤ "
		}
		must += number(r.must) + r.unit
		if r.told {
			must = "(told)"
		}
		if r.err != nil {
			fmt.Fprintf(&b, "| %s | %s | 0 | | %s | | %s | no |\n", r.name, r.size, reason(r.err), must)
			continue
		}
		met := "no"
		if r.met() {
			met = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s | %s | %s |\n", r.name, r.size, len(r.values),
			number(slices.Min(r.values)), number(median(r.values)), number(slices.Max(r.values)), must, met)
	}
	return b.String()
}

// reason is an error that fits into a cell.
func reason(err error) string {
	if errors.Is(err, errMissing) {
		return strings.ReplaceAll(err.Error(), "|", "/")
	}
	return "error: " + strings.NewReplacer("|", "/", "\n", "; ").Replace(err.Error())
}

// number writes four digits that matter.
func number(v float64) string {
	switch {
	case v == float64(int64(v)):
		return fmt.Sprint(int64(v))
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// figures are the plain numbers behind the ratios, in the order they came.
type figures struct {
	names  []string
	byName map[string][]measure
}

func (f *figures) add(name string, m measure) {
	if f.byName == nil {
		f.byName = map[string][]measure{}
	}
	if f.byName[name] == nil {
		f.names = append(f.names, name)
	}
	f.byName[name] = append(f.byName[name], m)
}

// table returns the medians of every case.
func (f *figures) table() string {
	var b strings.Builder
	b.WriteString("| case | GB/s | CPU s/GiB client + server | peak RSS MiB client / server (0: not measured) | value |\n|---|---|---|---|---|\n")
	for _, name := range f.names {
		mid := func(of func(measure) float64) float64 {
			var values []float64
			for _, m := range f.byName[name] {
				values = append(values, of(m))
			}
			return median(values)
		}
		if f.byName[name][0].bytes == 0 {
			fmt.Fprintf(&b, "| %s | | | | %s |\n", name, number(mid(func(m measure) float64 { return m.value })))
			continue
		}
		perGiB := func(u func(measure) float64) float64 {
			return mid(func(m measure) float64 { return u(m) / float64(m.bytes) * (1 << 30) })
		}
		fmt.Fprintf(&b, "| %s | %.2f | %.2f + %.2f | %.0f / %.0f | |\n", name, mid(func(m measure) float64 { return m.rate() / 1e9 }),
			perGiB(func(m measure) float64 { return m.client.cpu }), perGiB(func(m measure) float64 { return m.server.cpu }),
			mid(func(m measure) float64 { return float64(m.client.peak) / (1 << 20) }),
			mid(func(m measure) float64 { return float64(m.server.peak) / (1 << 20) }))
	}
	return b.String()
}
