// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/segment"
)

const (
	// window is how many reports may be unacknowledged.
	window = 16
	// chunkSize leaves room for the rest of a frame.
	chunkSize = link.MaxFrame - 64<<10
	// perItem bounds the size of the tag and length of an embedded message.
	perItem = 8
)

// outbox builds the reports of one stream. Sequences continue across the streams of an incarnation.
type outbox struct {
	chunk    int    // bytes, or 0 for chunkSize
	sequence uint64 // of the last report that was built
	acked    uint64
	reported segment.Snapshot
	// promised is set when an answer refers to the next report, which must then be sent even if it is empty.
	promised bool
}

// coveredBy returns the sequence of the next report, and promises that report.
func (o *outbox) coveredBy() uint64 {
	o.promised = true
	return o.sequence + 1
}

// ready reports whether there is credit for another report.
func (o *outbox) ready() bool { return o.sequence-o.acked < window }

// ack takes an acknowledgement. A late or repeated one changes nothing.
func (o *outbox) ack(sequence uint64) {
	if sequence <= o.sequence {
		o.acked = max(o.acked, sequence)
	}
}

// delta returns a report of the differences from the last one. It returns nil if there are none and no report was promised.
func (o *outbox) delta(d segment.Delta) []*federationv1.Report {
	d = o.reported.Apply(d)
	if d.Empty() && !o.promised {
		return nil
	}
	return o.report(d, nil)
}

// complete returns a report of all segments.
func (o *outbox) complete(all []*segment.Segment, keys []*federationv1.KeyHolder) []*federationv1.Report {
	o.reported = segment.Snapshot{}
	chunks := o.report(o.reported.Apply(segment.Delta{Changed: all}), keys)
	for _, c := range chunks {
		c.Complete = true
	}
	return chunks
}

// resume returns a report of the differences from the view that the hub has, with the whole key index.
func (o *outbox) resume(all []*segment.Segment, keys []*federationv1.KeyHolder) []*federationv1.Report {
	var now segment.Snapshot
	now.Apply(segment.Delta{Changed: all})
	d := segment.Diff(&o.reported, &now)
	o.reported = now
	chunks := o.report(d, keys)
	for _, c := range chunks {
		c.Index = true
	}
	return chunks
}

// report splits a report into chunks, at least one.
func (o *outbox) report(d segment.Delta, keys []*federationv1.KeyHolder) []*federationv1.Report {
	o.sequence++
	o.promised = false
	chunk := &federationv1.Report{}
	chunks, size := []*federationv1.Report{chunk}, 0
	limit := cmp.Or(o.chunk, chunkSize)
	room := func(item proto.Message) {
		n := proto.Size(item) + perItem
		if size > 0 && size+n > limit {
			chunk, size = &federationv1.Report{}, 0
			chunks = append(chunks, chunk)
		}
		size += n
	}
	for _, s := range d.Changed {
		p := s.Proto()
		room(p)
		chunk.Segments = append(chunk.Segments, p)
	}
	for _, k := range d.Removed {
		p := k.Proto()
		room(p)
		chunk.Removed = append(chunk.Removed, p)
	}
	for _, k := range keys {
		room(k)
		chunk.Keys = append(chunk.Keys, k)
	}
	for i, c := range chunks {
		c.Sequence, c.Chunk = o.sequence, uint32(i)
	}
	chunk.Last, chunk.Digest = true, o.reported.Digest()
	return chunks
}
