// SPDX-License-Identifier: Apache-2.0

package problem

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// ContentType is the media type of a problem document.
const ContentType = "application/problem+json"

// Header contains the reason in a response that Write wrote. It distinguishes such a response from one of an application in a sandbox,
// or behind a cluster's API server, which may contain a problem too: reach and kubeproxy remove this header from it.
const Header = "X-Atoll-Problem"

// document is an RFC 9457 problem with Atoll's extension members.
type document struct {
	Type     string  `json:"type"`
	Title    string  `json:"title"`
	Status   int     `json:"status"`
	Detail   string  `json:"detail"`
	Reason   Reason  `json:"reason"`
	Errors   []Field `json:"errors,omitempty"`
	ClaimKey string  `json:"claimKey,omitempty"`
}

// Write sends e as an HTTP response. Retry-After is in whole seconds, rounded up, and always present on 503.
func (e *Error) Write(w http.ResponseWriter) { e.WriteStatus(w, e.Reason.HTTPStatus()) }

// WriteStatus is Write with an HTTP status that has no equivalent in gRPC.
func (e *Error) WriteStatus(w http.ResponseWriter, code int) {
	retry := e.RetryAfter.Seconds()
	if retry <= 0 && code == http.StatusServiceUnavailable {
		retry = 1
	}
	if retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(retry))))
	}
	body, err := e.document(code)
	if err != nil {
		http.Error(w, e.Message, code)
		return
	}
	w.Header().Set("Content-Type", ContentType)
	w.Header().Set(Header, string(e.Reason))
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
}

// Document returns the body that Write sends.
func (e *Error) Document() ([]byte, error) { return e.document(e.Reason.HTTPStatus()) }

func (e *Error) document(code int) ([]byte, error) {
	return json.Marshal(document{
		Type: "about:blank", Title: http.StatusText(code), Status: code, Detail: e.Message,
		Reason: e.Reason, Errors: e.Fields, ClaimKey: e.ClaimKey,
	})
}

// Read returns the error in an HTTP response.
func Read(status int, body io.Reader) *Error {
	text, err := io.ReadAll(io.LimitReader(body, maxDocument))
	var d document
	if err != nil || json.Unmarshal(text, &d) != nil || d.Reason == "" {
		return New(reasonOfHTTP(status), "the server returned %d %s: %s", status, http.StatusText(status), strings.TrimSpace(string(text)))
	}
	return &Error{Reason: d.Reason, Message: d.Detail, Fields: d.Errors, ClaimKey: d.ClaimKey}
}

// maxDocument bounds the bytes read from a response.
const maxDocument = 64 << 10

func reasonOfHTTP(status int) Reason {
	for _, reason := range []Reason{Invalid, Unauthenticated, Forbidden, NotFound, Misconfigured, RateLimited, Expired, Unavailable,
		Deadline, Unimplemented} {
		if reason.HTTPStatus() == status {
			return reason
		}
	}
	return Internal
}
