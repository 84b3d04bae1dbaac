// SPDX-License-Identifier: Apache-2.0

package link

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
)

// I14: a frame that cannot be sent or read is lost alone: the other side gets an empty one, which every build ignores, and it is
// counted. A tunnel's messages are never left out.
func TestI14AFrameThatCannotTravelIsDroppedAlone(t *testing.T) {
	metrics, err := NewMetrics(prometheus.NewRegistry())
	must.Succeed(t, err)
	c := newCodec(metrics, logr.Discard())
	dispatch := func(trace string) *federationv1.HubFrame {
		return &federationv1.HubFrame{Body: &federationv1.HubFrame_Dispatch{Dispatch: &federationv1.Dispatch{Id: 1,
			Trace: map[string]string{"a": trace}}}}
	}
	for name, f := range map[string]proto.Message{"too large": dispatch(strings.Repeat("x", 5<<20)), "no text": dispatch("\xff")} {
		data, err := c.Marshal(f)
		if err != nil || data.Len() != 0 {
			t.Errorf("%s: %d bytes, %v", name, data.Len(), err)
		}
		if Check(f) == nil {
			t.Errorf("%s: said to be sendable", name)
		}
	}
	if _, err := c.Marshal(&federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Token{Token: "\xff"}}); err == nil {
		t.Error("a tunnel's frame is left out")
	}

	// A report of two million segments, each of two bytes.
	empty := []byte(strings.Repeat("\x2a\x00", 2_000_000))
	many := protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), empty)
	for name, data := range map[string][]byte{"no frame": []byte("\xff\xff\xff"), "many items": many} {
		got := &federationv1.WorkerFrame{}
		if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, got); err != nil || got.GetBody() != nil {
			t.Errorf("%s: read as %d segments, %v", name, len(got.GetReport().GetSegments()), err)
		}
	}
	if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer([]byte("\xff"))}, &federationv1.TunnelFrame{}); err == nil {
		t.Error("a tunnel's frame is left out")
	}
	for labels, want := range map[[2]string]float64{{"out", "dispatch"}: 2, {"in", "unknown"}: 2} {
		if got := testutil.ToFloat64(metrics.dropped.WithLabelValues(labels[:]...)); got != want {
			t.Errorf("%v frames were counted for %v, want %v", got, labels, want)
		}
	}

	// A frame that a worker fills is read.
	full := &federationv1.Report{}
	for proto.Size(full) < MaxFrame {
		for range 1000 {
			full.Removed = append(full.Removed, &federationv1.EnvKey{Namespace: "ns", Name: "name"})
		}
	}
	want := &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Report{Report: full}}
	data, err := c.Marshal(want)
	got := &federationv1.WorkerFrame{}
	if err != nil || c.Unmarshal(data, got) != nil || !proto.Equal(got, want) {
		t.Error("a full frame does not come as it was sent")
	}
}

// A message of a tunnel takes no more memory than twice its size at either end, and arrives as it was.
func TestAMessageOfATunnelTakesLittleMemory(t *testing.T) {
	c := newCodec(nil, logr.Discard())
	sent := &federationv1.TunnelFrame{Body: &federationv1.TunnelFrame_Data{Data: []byte(strings.Repeat("x", 32<<10+1))}}
	data, err := c.Marshal(sent)
	must.Succeed(t, err)
	encoded := data[0].ReadOnlyData()
	if len(data) != 1 || cap(encoded) > 64<<10 {
		t.Errorf("%d bytes are in %d buffers, the first of %d", data.Len(), len(data), cap(encoded))
	}
	halves := mem.BufferSlice{mem.SliceBuffer(encoded[:100]), mem.SliceBuffer(encoded[100:])} // frames of HTTP/2
	got := &federationv1.TunnelFrame{}
	must.Succeed(t, c.Unmarshal(halves, got))
	if !proto.Equal(got, sent) {
		t.Error("the message arrived as another one")
	}
	data.Free()
}
