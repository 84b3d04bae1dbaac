// SPDX-License-Identifier: Apache-2.0

package registrycopy

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navix.sh/atoll/e2e/must"
)

// apiServer simulates the two calls that the chart's Role allows.
type apiServer struct {
	exists bool
	data   map[string][]byte
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := func(code int, message string) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "message": message})
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer sesame":
		status(http.StatusUnauthorized, "who are you")
	case r.URL.Path != "/api/v1/namespaces/atoll-system/secrets/copy":
		status(http.StatusForbidden, "not yours")
	case !a.exists:
		status(http.StatusNotFound, "no such Secret")
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(w).Encode(secretData{a.data})
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/merge-patch+json":
		var patch secretData
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			status(http.StatusBadRequest, err.Error())
			return
		}
		for key, value := range patch.Data {
			a.data[key] = value
		}
		_ = json.NewEncoder(w).Encode(secretData{a.data})
	default:
		status(http.StatusMethodNotAllowed, r.Method)
	}
}

func TestSecret(t *testing.T) {
	api := &apiServer{data: map[string][]byte{"other": []byte("o")}}
	server := httptest.NewTLSServer(api)
	defer server.Close()
	identity := t.TempDir()
	for name, content := range map[string][]byte{
		"namespace": []byte("atoll-system\n"), "token": []byte("sesame\n"),
		"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(identity, name), content, 0o600))
	}
	s, err := newSecret(server.URL, identity, "copy")
	must.Succeed(t, err)
	defer s.client.CloseIdleConnections()
	if _, err := s.Read(t.Context()); !errors.Is(err, ErrNone) {
		t.Errorf("there is no Secret: %v", err)
	}
	if err := s.Write(t.Context(), []byte("x")); err == nil || !strings.Contains(err.Error(), "404: no such Secret") {
		t.Errorf("there is no Secret: %v", err)
	}
	api.exists = true
	if _, err := s.Read(t.Context()); !errors.Is(err, ErrNone) {
		t.Errorf("there is nothing in it: %v", err)
	}
	must.Succeed(t, s.Write(t.Context(), []byte(`{"a":1}`)))
	if got, err := s.Read(t.Context()); err != nil || string(got) != `{"a":1}` || string(api.data["other"]) != "o" {
		t.Errorf("%q beside %q: %v", got, api.data["other"], err)
	}
	must.Succeed(t, os.WriteFile(filepath.Join(identity, "token"), []byte("old"), 0o600))
	if _, err := s.Read(t.Context()); err == nil || errors.Is(err, ErrNone) || strings.Contains(err.Error(), "old") {
		t.Errorf("with another token: %v", err)
	}
}
