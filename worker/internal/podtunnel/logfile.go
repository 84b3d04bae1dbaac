// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"context"
	"encoding/json"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/worker/internal/runtimes"
	"navix.sh/atoll/worker/internal/sandboxes"
)

// maxComplaint bounds the text that says why a log file was not read.
const maxComplaint = 512

// logFile reads a runtime's log, a file in its container, by running a command there.
func (a *APIServer) logFile(ctx context.Context, place sandboxes.Place, logs *federationv1.LogsReach) (reach.Tunnel, error) {
	file, err := runtimes.Log(place.Container, place.Runtimes, logs.GetRuntime())
	if err != nil {
		return nil, err
	}
	lines := int64(-1)
	if logs.Tail != nil {
		lines = logs.GetTail()
	}
	command := &federationv1.ExecReach{Container: file.Container, Command: file.Tail(lines, logs.GetFollow()), Stdout: true, Stderr: true}
	tunnel, err := a.exec(ctx, place, command)
	if err != nil {
		return nil, err
	}
	return &fileTunnel{Tunnel: tunnel, file: file}, nil
}

// fileTunnel is a command's output without the exec channels.
type fileTunnel struct {
	reach.Tunnel
	file      runtimes.LogFile
	complaint strings.Builder
}

func (t *fileTunnel) Recv() ([]byte, error) {
	for {
		message, err := t.Tunnel.Recv()
		if err != nil {
			return nil, err
		}
		if len(message) < 2 {
			continue
		}
		switch said := message[1:]; message[0] {
		case reach.ChannelStdout:
			return said, nil
		case reach.ChannelStderr:
			t.complaint.Write(said[:min(len(said), maxComplaint-t.complaint.Len())])
		case reach.ChannelStatus:
			if err := t.readStatus(said); err != nil {
				return nil, err
			}
			return nil, io.EOF
		}
	}
}

// readStatus reads how the command ended.
func (t *fileTunnel) readStatus(text []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(text, &status); err != nil || status.Status == metav1.StatusSuccess {
		return nil // everything has been read, whatever the status
	}
	why := strings.TrimSpace(t.complaint.String())
	if why == "" {
		why = status.Message
	}
	return problem.New(problem.NotFound, "%s in container %s could not be read: %s", t.file.Path, t.file.Container, why)
}

func (t *fileTunnel) Send([]byte) error { return nil }
func (t *fileTunnel) CloseSend() error  { return nil }
