import { ToggleGroup } from "radix-ui";

/** One of a few, as a row of buttons. */
export function Choice<T extends string>(props: {
  label: string;
  value: T;
  choices: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}) {
  return (
    <ToggleGroup.Root
      type="single"
      className="choice"
      aria-label={props.label}
      value={props.value}
      onValueChange={(value) => value && props.onChange(value as T)}
    >
      {props.choices.map(([value, text]) => (
        <ToggleGroup.Item key={value} value={value}>
          {text}
        </ToggleGroup.Item>
      ))}
    </ToggleGroup.Root>
  );
}
