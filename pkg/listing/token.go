// SPDX-License-Identifier: Apache-2.0

package listing

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/validate"
)

const (
	validToken = "what nextPageToken said, with the same filters and order"
	validMark  = "the resumeToken of an event, with the same filters"
	digestSize = 8
	maxSealed  = 2 * (maxPosition + 64)
)

// kind is the first byte of a sealed text.
type kind byte

const (
	ofPage kind = 1
	ofMark kind = 2
)

// Seal seals a page token of Query.Token for the request's caller.
func Seal(r *sandboxv1.ListSandboxesRequest, token string) string {
	if token == "" {
		return ""
	}
	return seal(ofPage, digest(r), []byte(token))
}

// Unseal returns a caller's request with its page token in the form for Parse.
func Unseal(r *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesRequest, validate.Faults) {
	var f validate.Faults
	plain := proto.CloneOf(r)
	f.Check(!r.GetWatch(), "watch", "true", "nothing over gRPC, where WatchSandboxes watches")
	f.Check(r.GetResumeToken() == "", "resumeToken", validate.Clip(r.GetResumeToken()), "nothing, without watch=true")
	if r.GetPageToken() == "" {
		return plain, f
	}
	text, ok := unseal(ofPage, r, r.GetPageToken())
	plain.PageToken = string(text)
	f.Check(ok && len(text) > 0, "pageToken", validate.Clip(r.GetPageToken()), validToken)
	return plain, f
}

// Mark is the position of a watch: the revision of a copy of the watched sandboxes.
type Mark struct {
	Copy, Revision uint64
}

// Marks seals the marks of one watch.
type Marks struct{ digest []byte }

// MarksOf returns the Marks of a watch's request.
func MarksOf(r *sandboxv1.ListSandboxesRequest) Marks { return Marks{digest(r)} }

// Seal returns a mark in the form for the watch's caller.
func (m Marks) Seal(at Mark) string {
	return seal(ofMark, m.digest, binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, at.Copy), at.Revision))
}

// UnsealMark returns the mark in a caller's request, or nil if there is none.
func UnsealMark(r *sandboxv1.ListSandboxesRequest) (*Mark, validate.Faults) {
	var f validate.Faults
	if r.GetResumeToken() == "" {
		return nil, nil
	}
	data, ok := unseal(ofMark, r, r.GetResumeToken())
	if !ok || len(data) != 16 {
		f.Add("resumeToken", validate.Clip(r.GetResumeToken()), validMark)
		return nil, f
	}
	return &Mark{Copy: binary.BigEndian.Uint64(data), Revision: binary.BigEndian.Uint64(data[8:])}, nil
}

func seal(k kind, digest, data []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(append([]byte{byte(k)}, digest...), data...))
}

func unseal(k kind, r *sandboxv1.ListSandboxesRequest, text string) ([]byte, bool) {
	if len(text) > maxSealed {
		return nil, false
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(data) < 1+digestSize || kind(data[0]) != k || !bytes.Equal(data[1:1+digestSize], digest(r)) {
		return nil, false
	}
	return data[1+digestSize:], true
}

// digest returns a hash of the fields that must not change between the pages of a list.
func digest(r *sandboxv1.ListSandboxesRequest) []byte {
	same := proto.CloneOf(r)
	same.PageSize, same.PageToken, same.ReadMask, same.ResumeToken, same.Watch = 0, "", nil, "", false
	data, _ := proto.MarshalOptions{Deterministic: true}.Marshal(same) // cannot fail: the text was valid when the request arrived
	sum := sha256.Sum256(data)
	return sum[:digestSize]
}

// OfWatch returns the list request with the filters of a watch. Its resume token is only for UnsealMark.
func OfWatch(r *sandboxv1.WatchSandboxesRequest) (*sandboxv1.ListSandboxesRequest, validate.Faults) {
	var f validate.Faults
	f.Check(r.GetPhase() != sandboxv1.Phase_ENDED, "phase", r.GetPhase().String(),
		"the phase of a live sandbox: a watch tells of an end as DELETED")
	return &sandboxv1.ListSandboxesRequest{
		Namespace: r.GetNamespace(), Env: r.GetEnv(), ClusterId: r.GetClusterId(), Team: r.GetTeam(), User: r.GetUser(), Phase: r.GetPhase(),
		Pool: r.GetPool(), LabelSelector: r.GetLabelSelector(), MetadataSelector: r.GetMetadataSelector(), ReadMask: r.GetReadMask(),
		ResumeToken: r.GetResumeToken(),
	}, f
}

// Watch returns the watch that a list request over REST asks for, or faults for parameters that a watch does not support.
func Watch(r *sandboxv1.ListSandboxesRequest) (*sandboxv1.WatchSandboxesRequest, validate.Faults) {
	var f validate.Faults
	given := map[string]string{"pageToken": r.GetPageToken(), "orderBy": r.GetOrderBy(), "stopReason": r.GetStopReason()}
	if r.GetPageSize() != 0 {
		given["pageSize"] = strconv.Itoa(int(r.GetPageSize()))
	}
	for field, at := range map[string]*timestamppb.Timestamp{"endedAfter": r.GetEndedAfter(), "endedBefore": r.GetEndedBefore()} {
		if at != nil {
			given[field] = at.AsTime().Format(time.RFC3339)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(given)) {
		f.Check(given[field] == "", field, validate.Clip(given[field]), "nothing, with watch=true")
	}
	return &sandboxv1.WatchSandboxesRequest{
		Namespace: r.GetNamespace(), Env: r.GetEnv(), ClusterId: r.GetClusterId(), Team: r.GetTeam(), User: r.GetUser(), Phase: r.GetPhase(),
		Pool: r.GetPool(), LabelSelector: r.GetLabelSelector(), MetadataSelector: r.GetMetadataSelector(), ReadMask: r.GetReadMask(),
		ResumeToken: r.GetResumeToken(),
	}, f
}
