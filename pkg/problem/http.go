// SPDX-License-Identifier: Apache-2.0

package problem

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
)

// ContentType is the media type of a problem document.
const ContentType = "application/problem+json"

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

// Write answers an HTTP request with e. Retry-After is whole seconds, rounded up, and always present on 503.
func (e *Error) Write(w http.ResponseWriter) {
	code := e.Reason.HTTPStatus()
	retry := e.RetryAfter.Seconds()
	if retry <= 0 && code == http.StatusServiceUnavailable {
		retry = 1
	}
	if retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(retry))))
	}
	body, err := json.Marshal(document{
		Type: "about:blank", Title: http.StatusText(code), Status: code, Detail: e.Message,
		Reason: e.Reason, Errors: e.Fields, ClaimKey: e.ClaimKey,
	})
	if err != nil {
		http.Error(w, e.Message, code)
		return
	}
	w.Header().Set("Content-Type", ContentType)
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
}
