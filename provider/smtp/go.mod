module github.com/seed-8098fbb7/dispatch/provider/smtp

go 1.26.0

replace github.com/seed-8098fbb7/dispatch => ../..

require (
	github.com/google/uuid v1.6.0
	github.com/seed-8098fbb7/dispatch v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	golang.org/x/net v0.62.0
)

require (
	github.com/emersion/go-message v0.18.2 // indirect
	github.com/emersion/go-sasl v0.0.0-20241020182733-b788ff22d5a6 // indirect
	github.com/emersion/go-smtp v0.25.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/text v0.43.0 // indirect
)
