// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/pkg/problem"
)

// writeError writes an error in the form that Kubernetes clients read: a metav1.Status instead of a problem document.
func writeError(w http.ResponseWriter, t target, err error) {
	translated := &translator{ResponseWriter: w}
	problem.FromError(err).Write(translated)
	translated.finish(t)
}

// translator replaces a problem document of the hub that is written to it by a metav1.Status. It passes everything else, such as a problem
// of an application behind the API server, which may have any size.
type translator struct {
	http.ResponseWriter
	code     int // status of a problem document; 0: there is none
	document bytes.Buffer
}

func (t *translator) WriteHeader(code int) {
	if t.Header().Get("Content-Type") == problem.ContentType && t.Header().Get(problem.Header) != "" {
		t.code = code
		return
	}
	t.ResponseWriter.WriteHeader(code)
}

func (t *translator) Write(p []byte) (int, error) {
	if t.code != 0 {
		return t.document.Write(p)
	}
	return t.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (t *translator) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *translator) finish(of target) {
	if t.code == 0 {
		return
	}
	p := problem.Read(t.code, &t.document)
	if t.code == http.StatusServiceUnavailable {
		t.Header().Del("Retry-After") // clients would silently repeat a call to an absent cluster for a minute
	}
	if of.rest == "/api" || of.rest == "/apis" { // discovery: of its errors, clients only show text
		t.Header().Set("Content-Type", "text/plain; charset=utf-8")
		t.ResponseWriter.WriteHeader(t.code)
		_, _ = io.WriteString(t.ResponseWriter, "atoll: "+p.Message)
		return
	}
	t.Header().Set("Content-Type", "application/json")
	t.ResponseWriter.WriteHeader(t.code)
	_ = json.NewEncoder(t.ResponseWriter).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(t.code),
		Reason: reasonOf(t.code), Message: "atoll: " + p.Message,
	})
}

func reasonOf(code int) metav1.StatusReason {
	switch code {
	case http.StatusBadRequest:
		return metav1.StatusReasonBadRequest
	case http.StatusUnauthorized:
		return metav1.StatusReasonUnauthorized
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	case http.StatusNotFound:
		return metav1.StatusReasonNotFound
	case http.StatusTooManyRequests:
		return metav1.StatusReasonTooManyRequests
	case http.StatusServiceUnavailable:
		return metav1.StatusReasonServiceUnavailable
	case http.StatusGatewayTimeout:
		return metav1.StatusReasonTimeout
	default:
		return metav1.StatusReasonInternalError
	}
}
