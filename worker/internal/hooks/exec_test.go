// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"navix.sh/atoll/e2e/must"
)

// The channels of an API server's exec, version 5: standard output, standard error, and how the command ended.
const (
	stdout = 1
	ending = 3
)

// apiServer plays the exec of an API server: the command's name is its result.
func apiServer(t *testing.T) *Cluster {
	t.Helper()
	upgrade := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/api/v1/namespaces/default/pods/p-1/exec" || q.Get("container") != "main" || q.Get("stdin") == "true" {
			http.Error(w, "not asked for", http.StatusTeapot)
			return
		}
		if q.Get("command") == "forbidden" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(metav1.Status{Status: "Failure", Reason: "Forbidden", Message: "pods is forbidden", Code: 403})
			return
		}
		conn, err := upgrade.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{stdout}, strings.Join(q["command"], " ")...))
		status := metav1.Status{Status: "Success"}
		switch q.Get("command") {
		case "fails":
			status = metav1.Status{Status: "Failure", Reason: "NonZeroExitCode", Message: "exit", Details: &metav1.StatusDetails{
				Causes: []metav1.StatusCause{{Type: "ExitCode", Message: "3"}},
			}}
		case "hangs":
			_, _, _ = conn.ReadMessage()
			return
		}
		body, _ := json.Marshal(status)
		_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{ending}, body...))
		_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
	}))
	t.Cleanup(server.Close)
	cluster, err := NewCluster(&rest.Config{Host: server.URL})
	must.Succeed(t, err)
	return cluster
}

func TestExec(t *testing.T) {
	cluster := apiServer(t)
	run := func(timeout time.Duration, command ...string) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		return cluster.Exec(ctx, types.NamespacedName{Namespace: "default", Name: "p-1"}, "main", command)
	}
	if err := run(time.Minute, "works", "a b"); err != nil {
		t.Errorf("a command that works: %v", err)
	}
	if err := run(time.Minute, "fails"); err == nil || err.Error() != "exit code 3" {
		t.Errorf("a command that fails: %v", err)
	}
	if err := run(time.Minute, "forbidden"); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("a command that is not allowed: %v", err)
	}
	if err := run(100*time.Millisecond, "hangs"); !errors.Is(err, errOutcomeUnknown) {
		t.Errorf("a command that hangs: %v", err)
	}
	for _, known := range []string{"fails", "forbidden"} {
		if err := run(time.Minute, known); errors.Is(err, errOutcomeUnknown) {
			t.Errorf("%s is known: %v", known, err)
		}
	}
}
