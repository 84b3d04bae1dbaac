// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// AuditEvent is one request that an API server has served.
type AuditEvent struct {
	User        string
	Verb        string // get, list, watch, create, update, patch, delete, deletecollection
	Group       string // of the API; empty: the core group
	Resource    string // plural; empty for requests without objects
	Subresource string
	Namespace   string
	Name        string
	UserAgent   string
	Code        int
	Received    time.Time
	Answered    time.Time
}

// Write reports whether the request is a write.
func (e AuditEvent) Write() bool {
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

func (p *Plane) auditPath() string { return filepath.Join(p.logDir, "audit.log") }

// Audit returns all requests served so far, in the order of their responses. A request is logged while its response is in
// flight, so the latest may be missing for a moment. It needs Options.AuditLog.
func (p *Plane) Audit() ([]AuditEvent, error) {
	if !p.auditLog {
		return nil, errors.New("plane was brought up without AuditLog")
	}
	f, err := os.Open(p.auditPath())
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	defer f.Close()
	var events []AuditEvent
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil // what follows the last line is being written
		}
		if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		event, complete, err := parseAuditEvent(line)
		if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		if complete {
			events = append(events, event)
		}
	}
}

// parseAuditEvent reads one line. A watch is logged when it begins and when it ends; only the end counts.
func parseAuditEvent(line []byte) (event AuditEvent, complete bool, err error) {
	var raw struct {
		Stage     string `json:"stage"`
		Verb      string `json:"verb"`
		UserAgent string `json:"userAgent"`
		User      struct {
			Username string `json:"username"`
		} `json:"user"`
		ObjectRef struct {
			APIGroup    string `json:"apiGroup"`
			Resource    string `json:"resource"`
			Subresource string `json:"subresource"`
			Namespace   string `json:"namespace"`
			Name        string `json:"name"`
		} `json:"objectRef"`
		ResponseStatus struct {
			Code int `json:"code"`
		} `json:"responseStatus"`
		RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
		StageTimestamp           time.Time `json:"stageTimestamp"`
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return AuditEvent{}, false, err
	}
	return AuditEvent{
		User:        raw.User.Username,
		Verb:        raw.Verb,
		Group:       raw.ObjectRef.APIGroup,
		Resource:    raw.ObjectRef.Resource,
		Subresource: raw.ObjectRef.Subresource,
		Namespace:   raw.ObjectRef.Namespace,
		Name:        raw.ObjectRef.Name,
		UserAgent:   raw.UserAgent,
		Code:        raw.ResponseStatus.Code,
		Received:    raw.RequestReceivedTimestamp,
		Answered:    raw.StageTimestamp,
	}, raw.Stage == "ResponseComplete", nil
}
