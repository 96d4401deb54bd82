package rpc

import (
	"time"

	"github.com/controld/controld/sandbox"
)

// Transfer is a minted transfer.
type Transfer struct {
	ID string
	// Token opens the data connection, once. It goes into no log.
	Token string
	// Endpoints are where, in the order to try.
	Endpoints []string
	// ExpiresIn is how long the token lives unused.
	ExpiresIn time.Duration
}

// maxTransferID bounds the id of a transfer, which is a UUID, in bytes.
const maxTransferID = 64

var mintFields = []string{"id", "token", "endpoints", "expires_in_s"}

// transfer reads a Transfer.
func (d *decoder) transfer() *Transfer {
	t := new(Transfer)
	o := object{fields: mintFields}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		switch field {
		case "id":
			if t.ID = d.str(); len(t.ID) > maxTransferID {
				d.mismatch("is too long")
			}
		case "token":
			t.Token = d.str()
		case "endpoints":
			t.Endpoints = d.strings()
		case "expires_in_s":
			t.ExpiresIn = d.seconds(maxDuration)
		}
	}
	d.require(&o, "id")
	d.require(&o, "token")
	return t
}

func (t *Transfer) encode(e encoder) {
	e.raw(`{"id":`)
	e.str(t.ID)
	e.raw(`,"token":`)
	e.str(t.Token)
	e.raw(`,"endpoints":`)
	e.strings(t.Endpoints)
	e.raw(`,"expires_in_s":`)
	e.seconds(t.ExpiresIn)
	e.raw("}")
}

// StreamResult is that of read_file_stream and, with a transfer alone, of
// write_file_stream.
type StreamResult struct {
	Transfer Transfer
	// Size is the whole file's, Length what will be sent.
	Size, Length sandbox.Optional[int64]
	ETag         string
}

var streamResultFields = []string{"transfer", "size", "length", "etag"}

func (r *StreamResult) decode(d *decoder) {
	o := object{fields: streamResultFields}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		switch field {
		case "transfer":
			r.Transfer = *d.transfer()
		case "size":
			r.Size = sandbox.Some(d.size())
		case "length":
			r.Length = sandbox.Some(d.size())
		case "etag":
			r.ETag = d.str()
		}
	}
	d.require(&o, "transfer")
}

func (r *StreamResult) encode(e encoder) {
	e.raw(`{"transfer":`)
	r.Transfer.encode(e)
	e.optionalField("size", r.Size)
	e.optionalField("length", r.Length)
	e.strField("etag", r.ETag)
	e.raw("}")
}

// VerdictResult is that of transfer_result and transfer_commit.
type VerdictResult struct {
	Bytes int64
	// ETag names the new version (writes).
	ETag    string
	Verdict sandbox.ReadVerdict
}

var verdictFields = []string{"bytes", "etag", "changed", "sha256"}

func (r *VerdictResult) decode(d *decoder) {
	o := object{fields: verdictFields}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		switch field {
		case "bytes":
			r.Bytes = d.size()
		case "etag":
			r.ETag = d.str()
		case "changed":
			r.Verdict.Changed = d.boolean()
		case "sha256":
			r.Verdict.SHA256 = d.str()
		}
	}
	d.require(&o, "bytes")
}

func (r *VerdictResult) encode(e encoder) {
	e.raw(`{"bytes":`)
	e.integer(r.Bytes)
	e.strField("etag", r.ETag)
	e.trueField("changed", r.Verdict.Changed)
	e.strField("sha256", r.Verdict.SHA256)
	e.raw("}")
}
