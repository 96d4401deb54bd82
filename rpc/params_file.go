package rpc

import (
	"time"

	"github.com/controld/controld/sandbox"
)

// ReadParams are those of read_file, read_file_buffer and read_file_stream.
type ReadParams struct {
	Path    string
	Options sandbox.ReadOptions
	// stream tells which of the two sets of fields is legal.
	stream bool
}

// NewReadStreamParams returns the params of read_file_stream.
func NewReadStreamParams(path string, opts sandbox.ReadOptions) *ReadParams {
	return &ReadParams{Path: path, Options: opts, stream: true}
}

var (
	readFields       = []string{"path", "scope", "offset", "length", "inline_max"}
	readStreamFields = []string{"path", "scope", "offset", "length", "if_match", "digest", keyField}
)

func (p *ReadParams) decode(d *decoder) {
	fields, keyed := readFields, 0
	if p.stream {
		fields, keyed = readStreamFields, 1
	}
	d.pathParams(fields, keyed, &p.Path, &p.Options.Scope, func(field string) {
		switch field {
		case "offset":
			p.Options.Offset = d.size()
		case "length":
			p.Options.Length = sandbox.Some(d.size())
		case "inline_max":
			p.Options.InlineMax = sandbox.Some(d.size())
		case "if_match":
			p.Options.IfMatch = d.etag()
		case "digest":
			p.Options.Digest = d.digest()
		case keyField:
			p.Options.RequestKey = d.uuid()
		}
	})
}

func (p *ReadParams) encode(e encoder) {
	e.path(p.Path, p.Options.Scope)
	e.countField("offset", p.Options.Offset)
	e.optionalField("length", p.Options.Length)
	if p.stream {
		e.strField("if_match", p.Options.IfMatch)
		e.digestField(p.Options.Digest)
		e.strField(keyField, p.Options.RequestKey)
	} else {
		e.optionalField("inline_max", p.Options.InlineMax)
	}
	e.raw("}")
}

// pathParams reads the object of a file call: its path, its scope and, by
// other, the rest of its fields, of which the last keyed need the capability.
func (d *decoder) pathParams(fields []string, keyed int, path, scope *string, other func(field string)) object {
	o := object{fields: fields, keyed: keyed, strict: true}
	for {
		field, ok := d.next(&o)
		switch {
		case !ok:
			d.require(&o, "path")
			return o
		case field == "path":
			*path = d.name()
		case field == "scope":
			*scope = d.scope()
		default:
			other(field)
		}
	}
}

// path begins the object of a file call.
func (e encoder) path(path, scope string) {
	e.raw(`{"path":`)
	e.name(path)
	e.nameField("scope", scope)
}

func (e encoder) optionalField(field string, n sandbox.Optional[int64]) {
	if n.Known {
		e.field(field)
		e.integer(n.Value)
	}
}

func (e encoder) secondsField(field string, t sandbox.Optional[time.Duration]) {
	if t.Known {
		e.field(field)
		e.seconds(max(t.Value, 0))
	}
}

func (e encoder) digestField(asked bool) {
	if asked {
		e.raw(`,"digest":"sha256"`)
	}
}

// scope reads a directory that a path must not leave; it is never empty, so
// that a client that lost its scope does not get the whole file system.
func (d *decoder) scope() string {
	s := d.name()
	if s == "" {
		d.mismatch("must not be empty")
	}
	return s
}

// etag reads an etag to compare with; it is never empty, so that a client that
// lost its etag does not write over whatever is there.
func (d *decoder) etag() string {
	s := d.str()
	if s == "" {
		d.mismatch("must not be empty")
	}
	return s
}

func (d *decoder) digest() bool {
	if d.str() != "sha256" {
		d.mismatch("must be \"sha256\"")
	}
	return true
}

// mode reads permission bits.
func (d *decoder) mode() sandbox.Optional[uint32] {
	return sandbox.Some(uint32(d.integer(0, 0o777)))
}

// WriteParams are those of write_file and write_file_stream.
type WriteParams struct {
	Path string
	// Content is all of the new file (write_file).
	Content []byte
	Options sandbox.WriteOptions
	stream  bool
}

// NewWriteStreamParams returns the params of write_file_stream.
func NewWriteStreamParams(path string, opts sandbox.WriteOptions) *WriteParams {
	return &WriteParams{Path: path, Options: opts, stream: true}
}

var (
	writeFields       = []string{"path", "content", "scope", "mode", "if_match", "sync", keyField}
	writeStreamFields = []string{"path", "size", "scope", "mode", "if_match", "sync", "parents", "digest", keyField}
)

func (p *WriteParams) decode(d *decoder) {
	fields := writeFields
	if p.stream {
		fields = writeStreamFields
	}
	o := d.pathParams(fields, 1, &p.Path, &p.Options.Scope, func(field string) { p.decodeField(d, field) })
	if !p.stream {
		d.require(&o, "content")
	}
}

func (p *WriteParams) decodeField(d *decoder, field string) {
	switch field {
	case "content":
		p.Content = d.content()
	case "mode":
		p.Options.Mode = d.mode()
	case "if_match":
		p.Options.IfMatch = d.etag()
	case "sync":
		p.Options.Sync = d.boolean()
	case "size":
		p.Options.Size = sandbox.Some(d.size())
	case "parents":
		p.Options.Parents = d.boolean()
	case "digest":
		p.Options.Digest = d.digest()
	case keyField:
		p.Options.RequestKey = d.uuid()
	}
}

func (p *WriteParams) encode(e encoder) {
	e.path(p.Path, p.Options.Scope)
	if p.Options.Mode.Known {
		e.field("mode")
		e.integer(int64(p.Options.Mode.Value))
	}
	e.strField("if_match", p.Options.IfMatch)
	e.trueField("sync", p.Options.Sync)
	e.strField(keyField, p.Options.RequestKey)
	if p.stream {
		e.optionalField("size", p.Options.Size)
		e.trueField("parents", p.Options.Parents)
		e.digestField(p.Options.Digest)
	} else {
		e.field("content")
		e.content(p.Content)
	}
	e.raw("}")
}
