package rpc

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// bytes returns the value in a slice of its own.
func (t stringToken) bytes() []byte {
	if !t.escaped {
		return append(make([]byte, 0, len(t.raw)), t.raw...)
	}
	out := make([]byte, t.size)
	unescape(out, t)
	return out
}

func (t stringToken) text() string {
	if !t.escaped {
		return string(t.raw)
	}
	return string(t.bytes())
}

// is compares without allocating.
func (t stringToken) is(s string) bool {
	if !t.escaped {
		return string(t.raw) == s
	}
	return t.size == len(s) && string(t.bytes()) == s
}

// object walks the fields of an object.
type object struct {
	fields []string // those that are known
	// strict makes unknown fields a fault; otherwise they are skipped. Known
	// ones that come twice always are: what reads a value may take time with
	// the square of a line that says it a million times.
	strict bool
	// keyed is how many of the last fields belong to the capability keys.
	keyed int
	// prefix goes before the names of fields in faults.
	prefix string
	seen   uint32
	begun  bool
}

// next goes to the next known field and returns its name; the caller then
// reads its value. It is false at the end and when there is no object.
func (d *decoder) next(o *object) (string, bool) {
	for d.broken == "" {
		if !d.nextName(o) {
			return "", false
		}
		t := d.scanString()
		if !d.expect(':') {
			return "", false
		}
		if field, ok := d.known(o, t); ok {
			d.field = field
			return field, true
		}
		d.skip()
	}
	return "", false
}

// nextName stands before a name, or has left the object.
func (d *decoder) nextName(o *object) bool {
	c := d.peek()
	if !o.begun {
		o.begun = true
		if c != '{' {
			d.mismatch("must be an object")
			d.skip()
			return false
		}
		if !d.enter() {
			return false
		}
		if c = d.peek(); c == '}' {
			d.leave()
			return false
		}
	} else if c == '}' {
		d.leave()
		return false
	} else if !d.expect(',') {
		return false
	}
	if d.peek() != '"' {
		d.fail("a name is missing")
		return false
	}
	return true
}

// known finds a name among the fields.
func (d *decoder) known(o *object, t stringToken) (string, bool) {
	if d.broken != "" {
		return "", false
	}
	fields := o.fields
	if d.keyless {
		fields = fields[:len(fields)-o.keyed]
	}
	for i, field := range fields {
		if !t.is(field) {
			continue
		}
		bit := uint32(1) << i
		if o.seen&bit != 0 {
			d.mismatchIn(o.prefix+field, "comes twice")
			return "", false
		}
		o.seen |= bit
		return field, true
	}
	if o.strict {
		d.mismatchIn(o.prefix+shorten(t.text()), "is not known")
	}
	return "", false
}

// shorten bounds what an error repeats of a peer's words.
func shorten(s string) string { return shortenTo(s, 64) }

func shortenTo(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// has tells whether a field came.
func (o *object) has(field string) bool {
	for i, f := range o.fields {
		if f == field {
			return o.seen&(1<<i) != 0
		}
	}
	return false
}

// require makes a missing field a fault.
func (d *decoder) require(o *object, field string) {
	if d.bad == "" && !o.has(field) {
		d.mismatchIn(field, "is missing")
	}
}

// str reads a string.
func (d *decoder) str() string {
	if d.peek() != '"' {
		d.mismatch("must be a string")
		d.skip()
		return ""
	}
	t := d.scanString()
	if d.broken != "" {
		return ""
	}
	return t.text()
}

// word reads a string of which a long one means nothing.
func (d *decoder) word() string { return shorten(d.str()) }

// boolean reads true or false.
func (d *decoder) boolean() bool {
	switch d.peek() {
	case 't':
		return d.literal("true")
	case 'f':
		d.literal("false")
	default:
		d.mismatch("must be true or false")
		d.skip()
	}
	return false
}

// number reads the text of a number.
func (d *decoder) number() ([]byte, bool) {
	if c := d.peek(); c != '-' && (c < '0' || c > '9') {
		d.mismatch("must be a number")
		d.skip()
		return nil, false
	}
	raw := d.scanNumber()
	return raw, raw != nil
}

// integer reads a whole number from least to most, which is below 2^53.
func (d *decoder) integer(least, most int64) int64 {
	raw, ok := d.number()
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(string(raw), 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) >= maxInt {
			d.mismatch("must be a whole number below 2^53")
			return 0
		}
		n = int64(f)
	}
	if n < least || n > most {
		d.mismatch("must be from " + strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10))
		return 0
	}
	return n
}

// size reads a count of bytes.
func (d *decoder) size() int64 { return d.integer(0, maxInt-1) }

// seconds reads a duration.
func (d *decoder) seconds(most time.Duration) time.Duration {
	raw, ok := d.number()
	if !ok {
		return 0
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f < 0 || f > most.Seconds() {
		d.mismatch("must be seconds from 0 to " + strconv.FormatFloat(most.Seconds(), 'f', -1, 64))
		return 0
	}
	return min(time.Duration(math.Round(f*float64(time.Second))), most)
}

// maxDuration bounds durations that have no bound of their own.
const maxDuration = time.Duration(math.MaxInt64 / 2)

// null takes a null, which is no value at all, from a sender that is not strict.
func (d *decoder) null() bool { return d.peek() == 'n' && d.literal("null") }

// array calls item before each element; item reads it.
func (d *decoder) array(item func()) {
	if d.peek() != '[' {
		d.mismatch("must be an array")
		d.skip()
		return
	}
	if !d.enter() {
		return
	}
	if d.peek() == ']' {
		d.leave()
		return
	}
	for d.broken == "" {
		item()
		if d.peek() == ']' {
			d.leave()
			return
		}
		d.expect(',')
	}
}

// finish makes anything behind the value a fault.
func (d *decoder) finish() {
	if d.broken == "" && d.peek() != 0 || d.pos < len(d.data) {
		d.fail("something follows the value")
	}
}
