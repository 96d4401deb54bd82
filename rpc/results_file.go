package rpc

import (
	"time"

	"github.com/controld/controld/sandbox"
)

// ReadResult is that of read_file and read_file_buffer.
type ReadResult struct {
	// File holds the content unless it comes by Transfer.
	File sandbox.FileContent
	// Transfer, where set, yields the content in Length bytes.
	Transfer *Transfer
	Length   int64
}

var readResultFields = []string{"content", "size", "etag", "transfer", "length"}

func (r *ReadResult) decode(d *decoder) {
	o := object{fields: readResultFields}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		switch field {
		case "content":
			r.File.Data = d.content()
		case "size":
			r.File.Size = d.size()
		case "etag":
			r.File.ETag = d.str()
		case "transfer":
			r.Transfer = d.transfer()
		case "length":
			r.Length = d.size()
		}
	}
	if !o.has("content") {
		d.require(&o, "transfer")
	}
}

func (r *ReadResult) encode(e encoder) {
	e.raw("{")
	if r.Transfer != nil {
		e.field("transfer")
		r.Transfer.encode(e)
		e.field("length")
		e.integer(r.Length)
	} else {
		e.field("content")
		e.content(r.File.Data)
	}
	e.field("size")
	e.integer(r.File.Size)
	e.strField("etag", r.File.ETag)
	e.raw("}")
}

// WriteResult is that of write_file.
type WriteResult struct{ Info sandbox.WriteInfo }

var writeResultFields = []string{"bytes", "etag", "atomic"}

func (r *WriteResult) decode(d *decoder) {
	o := object{fields: writeResultFields}
	r.Info.Atomic = true
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		switch field {
		case "bytes":
			r.Info.Bytes = d.size()
		case "etag":
			r.Info.ETag = d.str()
		case "atomic":
			r.Info.Atomic = d.boolean()
		}
	}
	d.require(&o, "bytes")
}

func (r *WriteResult) encode(e encoder) {
	e.raw(`{"bytes":`)
	e.integer(r.Info.Bytes)
	e.strField("etag", r.Info.ETag)
	e.raw(`,"atomic":`)
	e.boolean(r.Info.Atomic)
	e.raw("}")
}

// StatResult is that of stat.
type StatResult struct{ Stat sandbox.FileStat }

var statResultFields = []string{"type", "is_symlink", "size", "mtime", "mode", "etag"}

func (r *StatResult) decode(d *decoder) {
	o := object{fields: statResultFields}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		switch field {
		case "type":
			r.Stat.Type = fileType(d.str())
		case "is_symlink":
			r.Stat.IsSymlink = sandbox.Some(d.boolean())
		case "size":
			r.Stat.Size = sandbox.Some(d.size())
		case "mtime":
			r.Stat.ModTime = d.time()
		case "mode":
			r.Stat.Mode = d.mode()
		case "etag":
			r.Stat.ETag = d.str()
		}
	}
	d.require(&o, "type")
}

// fileType takes a type that this version does not know for "other".
func fileType(s string) sandbox.FileType {
	switch t := sandbox.FileType(s); t {
	case sandbox.TypeFile, sandbox.TypeDirectory, sandbox.TypeSymlink:
		return t
	}
	return sandbox.TypeOther
}

func (d *decoder) time() sandbox.Optional[time.Time] {
	t, err := time.Parse(time.RFC3339Nano, d.str())
	if err != nil {
		d.mismatch("must be a time of RFC 3339")
		return sandbox.Optional[time.Time]{}
	}
	return sandbox.Some(t)
}

// timeField writes a time that the wire can hold.
func (e encoder) timeField(field string, at sandbox.Optional[time.Time]) {
	if t := at.Value.UTC(); at.Known && t.Year() >= 1 && t.Year() <= 9999 {
		e.field(field)
		e.raw(`"`)
		e.m.buf = t.AppendFormat(e.m.buf, time.RFC3339Nano)
		e.raw(`"`)
	}
}

func (r *StatResult) encode(e encoder) {
	s := &r.Stat
	e.raw(`{"type":`)
	e.str(string(s.Type))
	if s.IsSymlink.Known {
		e.field("is_symlink")
		e.boolean(s.IsSymlink.Value)
	}
	e.optionalField("size", s.Size)
	e.timeField("mtime", s.ModTime)
	if s.Mode.Known {
		e.field("mode")
		e.integer(int64(s.Mode.Value & 0o777))
	}
	e.strField("etag", s.ETag)
	e.raw("}")
}

// ReadDirResult is that of readdir.
type ReadDirResult struct{ Listing sandbox.Listing }

var readDirResultFields = []string{"entries", "more"}

func (r *ReadDirResult) decode(d *decoder) {
	o := object{fields: readDirResultFields}
	r.Listing.Names = []string{}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		switch field {
		case "entries":
			d.array(func() { r.Listing.Names = append(r.Listing.Names, d.name()) })
		case "more":
			r.Listing.More = d.boolean()
		}
	}
	d.require(&o, "entries")
}

func (r *ReadDirResult) encode(e encoder) {
	e.raw(`{"entries":[`)
	for i, name := range r.Listing.Names {
		if i > 0 {
			e.raw(",")
		}
		e.name(name)
	}
	e.raw("]")
	e.trueField("more", r.Listing.More)
	e.raw("}")
}

// ExistsResult is that of exists.
type ExistsResult struct{ Exists bool }

var existsResultFields = []string{"exists"}

func (r *ExistsResult) decode(d *decoder) {
	o := object{fields: existsResultFields}
	for {
		if _, ok := d.next(&o); !ok {
			break
		}
		r.Exists = d.boolean()
	}
	d.require(&o, "exists")
}

func (r *ExistsResult) encode(e encoder) {
	e.raw(`{"exists":`)
	e.boolean(r.Exists)
	e.raw("}")
}
