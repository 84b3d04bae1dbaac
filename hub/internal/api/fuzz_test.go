// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/pkg/problem"
)

// Whatever a caller sends, the response is what it requested or a problem document that names the faulty side: never INTERNAL,
// which is a bug of ours.
func FuzzREST(f *testing.F) {
	for _, seed := range []struct{ method, path, key, body string }{
		{"POST", "/v1/sandboxes", "", `{"env":"demo","wait":"NONE"}`},
		{"POST", "/v1/sandboxes", "key", `{"env":"demo","claimKey":"other","startupTimeout":"1s"}`},
		{"POST", "/v1/sandboxes", "k\x80\x00", `{"env":"demo","startupTimeout":"-315576000000s","labels":{"a/b/c":"","":"é"},"metadata":{"` +
			strings.Repeat("x", 300) + `":""}}`},
		{"POST", "/v1/sandboxes", "",
			`{"env":"demo","namespace":"../x","clusters":["a","a",""],"requireClusters":true,"multiplier":-1,"instanceType":"\u0000"}`},
		{"POST", "/v1/sandboxes", "", `{"env":1e999,"wait":77}`},
		{"POST", "/v1/sandboxes", "", `[`},
		{"GET", "/v1/sandboxes?pageSize=1000&pageToken=01arz3ndektsv4rrffq69g5fav-east&phase=RUNNING&env=demo", "", ""},
		{"GET", "/v1/sandboxes?pageSize=99999999999&pageToken=%00%ff&phase=9&unknown=1", "", ""},
		{"GET", "/v1/sandboxes/01arz3ndektsv4rrffq69g5fav-east", "", ""},
		{"DELETE", "/v1/sandboxes/..%2f..%2fx", "", ""},
		{"PATCH", "/v1/sandboxes/01arz3ndektsv4rrffq69g5fav-east", "", `{"idleTimeout":"90s"}`},
		{"POST", "/v1/sandboxes/x:touch", "", `{}`},
		{"GET", "/v1/claims/a%2Fb%zz?namespace=default", "", ""},
		{"DELETE", "/v1/claims/%ff?namespace=%ff&team=%00", "", ""},
		{"GET", "/v1/clusters/east", "", ""},
		{"POST", "/v1/clusters/east:drain", "", `{"x":1}`},
		{"GET", "/v1/envs?pageToken=a%2Fb&pageSize=-1&namespace=x", "", ""},
		{"POST", "/v1/envs/default/demo:explain", "", `{"request":{"clusters":["east"]},"sandboxId":"x"}`},
		{"POST", "/v1/clusters/east:forget", "", `{"confirm":"east","force":true}`},
		{"POST", "/v1/clusters/east:undrain", "", ``},
		{"GET", "/v1/hub", "", ""},
		{"POST", "/v1/hub:acceptLoss", "", `{}`},
		{"PUT", "/v1/templates/x", "", `{}`},
		{"GET", "/v1/sandboxes/x/ports/80/..", "", ""},
		{"TRACE", "//v1//", "", ""},
	} {
		f.Add(seed.method, seed.path, seed.key, []byte(seed.body))
	}
	base := serveAPI(f, newFleet(f, "default/demo"), Options{})
	noRedirects := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := &http.Client{Timeout: 30 * time.Second, CheckRedirect: noRedirects}
	f.Cleanup(client.CloseIdleConnections)
	f.Fuzz(func(t *testing.T, method, path, key string, body []byte) {
		req, err := http.NewRequestWithContext(t.Context(), method, base+"/"+strings.TrimPrefix(path, "/"), bytes.NewReader(body))
		if err != nil || req.Host != strings.TrimPrefix(base, "http://") || req.Method == http.MethodConnect {
			return
		}
		req.Header.Set("Idempotency-Key", key)
		resp, err := client.Do(req)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%s %s: the server broke off, as it does at a panic, or hangs: %v", method, path, err)
		}
		if err != nil {
			return // what net/http does not send
		}
		defer func() { _ = resp.Body.Close() }()
		text := must.Read(t, resp.Body)
		checkAnswer(t, req, resp, text)
	})
}

func checkAnswer(t *testing.T, req *http.Request, resp *http.Response, text []byte) {
	t.Helper()
	if resp.StatusCode < 400 {
		return
	}
	var doc struct {
		Reason problem.Reason `json:"reason"`
		Status int            `json:"status"`
		Detail string         `json:"detail"`
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") && strings.HasPrefix(string(text), "400 Bad Request") {
		return // net/http's own: this never became a request
	}
	if req.Method != http.MethodHead {
		if err := json.Unmarshal(text, &doc); err != nil || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Fatalf("%s %s: %d %s: %s", req.Method, req.URL, resp.StatusCode, resp.Header.Get("Content-Type"), text)
		}
		if doc.Status != resp.StatusCode || doc.Detail == "" || !utf8.Valid(text) {
			t.Fatalf("%s %s: %d %s", req.Method, req.URL, resp.StatusCode, text)
		}
	}
	if resp.StatusCode == http.StatusInternalServerError || doc.Reason == problem.Internal {
		t.Fatalf("%s %s: %d %s", req.Method, req.URL, resp.StatusCode, text)
	}
}
