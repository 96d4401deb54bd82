package rpc

import (
	"bytes"
	"encoding/base64"
)

// strictBase64 decodes into a slice of the right size.
func strictBase64(t stringToken) ([]byte, bool) {
	raw := t.raw
	if t.escaped {
		raw = t.bytes()
		if bytes.ContainsAny(raw, "\r\n") {
			return nil, false
		}
	}
	out := make([]byte, base64.StdEncoding.DecodedLen(len(raw)))
	n, err := base64.StdEncoding.Strict().Decode(out, raw)
	if err != nil || len(raw)%4 != 0 {
		return nil, false
	}
	return out[:n], true
}

// content reads a Content.
func (d *decoder) content() []byte {
	field, o := d.field, object{fields: contentFields, strict: true, prefix: d.field + "."}
	var out []byte
	forms := 0
	for {
		form, ok := d.next(&o)
		if !ok {
			break
		}
		forms++
		d.field = field
		out = d.contentForm(form)
	}
	d.field = field
	if forms != 1 {
		d.mismatch("must be one of text and base64")
		return nil
	}
	return out
}

var contentFields = []string{"text", "base64"}

func (d *decoder) contentForm(form string) []byte {
	if d.peek() != '"' {
		d.mismatch("must be a string in " + form)
		d.skip()
		return nil
	}
	if form == "text" {
		return d.text()
	}
	t := d.scanString()
	if d.broken != "" {
		return nil
	}
	out, ok := strictBase64(t)
	if !ok {
		d.mismatch("is no standard padded base64")
	}
	return out
}

var nameFields = []string{"base64"}

// name reads a Name.
func (d *decoder) name() string {
	switch d.peek() {
	case '"':
		return d.str()
	case '{':
	default:
		d.mismatch("must be a string or base64")
		d.skip()
		return ""
	}
	field, o := d.field, object{fields: nameFields, strict: true, prefix: d.field + "."}
	var out []byte
	for {
		form, ok := d.next(&o)
		if !ok {
			break
		}
		d.field = field
		out = d.contentForm(form)
	}
	d.field = field
	if o.seen == 0 {
		d.mismatch("must be a string or base64")
	}
	return string(out)
}
