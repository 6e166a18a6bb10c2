// Package leaktest shows, in its tests, that no recipient, text or credential
// gets into a log line, a span, a metric or an error, whatever a vendor answers;
// and that the dashboard asks for metrics that there are. It is a module of its
// own for the sake of what it needs.
package leaktest
