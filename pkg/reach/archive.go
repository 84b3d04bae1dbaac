// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/sandboxd"
	"navix.sh/atoll/pkg/validate"
)

var archiveKinds = map[string]string{"tar": "application/x-tar", "zip": "application/zip"}

// archive sends the daemon a request for a folder as an archive.
func (i *inside) archive(method string, body io.Reader) (response *http.Response, format string, err error) {
	path := i.query.values.Get("path")
	i.query.path("path", path)
	format = cmp.Or(i.query.values.Get("format"), "tar")
	if archiveKinds[format] == "" {
		i.query.fault("format", validate.Clip(format), "tar or zip")
	}
	if err := i.query.known("path user format"); err != nil {
		return nil, "", err
	}
	to := i.Base + "/archive?" + url.Values{"path": {path}, "format": {format}}.Encode()
	request, err := http.NewRequestWithContext(i.context, method, to, body)
	if err != nil {
		return nil, "", fmt.Errorf("asking the daemon: %w", err)
	}
	if body != nil {
		request.Header.Set("Content-Type", archiveKinds[format])
	}
	response, err = i.Do(request, i.now)
	var refused *sandboxd.StatusError
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound && !json.Valid(refused.Body) {
		err = problem.New(problem.Misconfigured, "the daemon of sandbox %s is older than archives; its image, or --sandboxd-image of the "+
			"worker, needs a newer one", i.target.id)
	}
	return response, format, err
}

// pack streams the content of a folder.
func (i *inside) pack() error {
	response, format, err := i.archive(http.MethodGet, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	header := i.w.Header()
	header.Set("Content-Type", archiveKinds[format])
	header.Set("Content-Disposition", "attachment")
	header.Set("Content-Security-Policy", sandboxed)
	i.w.WriteHeader(http.StatusOK)
	if _, err := io.Copy(i.w, response.Body); err != nil {
		panic(http.ErrAbortHandler) // so that the caller does not take a part for the whole
	}
	return nil
}

// unpack streams a body to the daemon, which writes the files in it.
func (i *inside) unpack() error {
	body := &counted{from: i.request.Body}
	response, _, err := i.archive(http.MethodPut, body)
	switch {
	case body.err != nil:
		return problem.New(problem.Invalid, "the request's body broke off after %d bytes; files that had arrived may be there", body.bytes)
	case err != nil:
		return err
	}
	defer response.Body.Close()
	var out sandboxv1.Unpacked
	if err := json.NewDecoder(io.LimitReader(response.Body, maxReply)).Decode(&out); err != nil {
		return fmt.Errorf("reading the daemon's response: %w", err)
	}
	return i.reply(out)
}
