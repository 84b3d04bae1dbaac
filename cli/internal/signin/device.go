// SPDX-License-Identifier: Apache-2.0

package signin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// Device signs in with a browser on another machine. It calls show with the URL to visit and the code to enter there.
func (c *Client) Device(ctx context.Context, show func(where, code string)) (*Tokens, error) {
	config := c.config()
	if config.Endpoint.DeviceAuthURL == "" {
		return nil, fmt.Errorf("%s has no device codes; use a machine with a browser", c.settings.Issuer)
	}
	device, err := config.DeviceAuth(c.context(ctx))
	if err != nil {
		return nil, fmt.Errorf("asking %s for a device code: %w", c.settings.Issuer, err)
	}
	show(cmp.Or(device.VerificationURIComplete, device.VerificationURI), device.UserCode)
	token, err := config.DeviceAccessToken(c.context(ctx), device)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, errors.New("the code was not entered in time")
	case err != nil:
		return nil, fmt.Errorf("waiting for %s: %w", c.settings.Issuer, err)
	}
	return c.accept(ctx, token, "", "")
}
